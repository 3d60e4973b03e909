// Chooses the worker of a request: of those with free capacity, the one that holds the longest prefix of the prompt; of equals, the one
// with the lowest load; of equals, the fastest. If all are at capacity, the worker with the shortest queue, whatever prefix it holds:
// computing a prompt once more takes less time than waiting for an answer to end. Pure: workers.ts knows the workers.

import { heldBlocks } from "./fingerprints.ts";

/** A worker as a gateway sees it now. */
export interface WorkerView {
  readonly id: string;
  readonly capacity: number;
  /** Calls and lines there: those of this gateway now, those of others as of its last heartbeat. */
  readonly load: number;
  readonly tokensPerSecond: number;
  readonly held: ReadonlySet<number>;
}

/** `hashes`: of the prompt (blockHashes). undefined: there is no worker. */
export function chooseWorker<W extends WorkerView>(
  workers: readonly W[],
  hashes: readonly number[],
): W | undefined {
  let best: W | undefined;
  for (const worker of workers) {
    if (!best || isBetter(worker, best, hashes)) best = worker;
  }
  return best;
}

function isBetter(a: WorkerView, b: WorkerView, hashes: readonly number[]): boolean {
  const [aFree, bFree] = [isFree(a), isFree(b)];
  if (aFree !== bFree) return aFree;
  const [aHeld, bHeld] = [heldBlocks(hashes, a.held), heldBlocks(hashes, b.held)];
  if (aFree && aHeld !== bHeld) return aHeld > bHeld;
  const [aShare, bShare] = [a.load / a.capacity, b.load / b.capacity];
  if (aShare !== bShare) return aShare < bShare;
  if (aHeld !== bHeld) return aHeld > bHeld;
  return a.tokensPerSecond > b.tokensPerSecond;
}

function isFree({ load, capacity }: WorkerView): boolean {
  return load < capacity;
}
