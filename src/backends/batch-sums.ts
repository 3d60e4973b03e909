// The sums of a profile over the batches of one phase, for any backend: their number, time and sizes, and which of them are
// recorded. The backend records the times within a batch.
//
// Recording costs time, so not every batch of generation is recorded: the first ones, all that are long, and some of the
// others. The recorded ones stand for all.

import type { Batch } from "../graph/batch.ts";
import type { PhaseTimes } from "./backend.ts";

/** Which batches of generation are recorded: the first FIRST_BATCHES, one of SAMPLED after that, all longer than SHORT_MS. */
const FIRST_BATCHES = 16;
const SAMPLED = 16;
const SHORT_MS = 8;

interface SizeSum {
  readonly tokens: number;
  readonly outputs: number;
  batches: number;
  /** Sum over batches of the average context. */
  contexts: number;
}

export class BatchSums {
  batches = 0;
  batchMs = 0;
  recordedBatches = 0;
  recordedMs = 0;
  readonly #sizes = new Map<number, SizeSum>();

  /** A batch begins. */
  begin(batch: Batch): void {
    const size = this.#sizeOf(batch);
    let positions = 0;
    for (let t = 0; t < batch.tokenCount; t++) positions += batch.positions[t]! + 1;
    size.batches++;
    size.contexts += positions / Math.max(1, batch.tokenCount);
  }

  /** Whether the next batch of generation should be recorded. */
  get isSampled(): boolean {
    const { batches, batchMs } = this;
    return batches < FIRST_BATCHES || batches % SAMPLED === 0 || batchMs / batches >= SHORT_MS;
  }

  end(ms: number, isRecorded: boolean): void {
    this.batches++;
    this.batchMs += ms;
    if (!isRecorded) return;
    this.recordedBatches++;
    this.recordedMs += ms;
  }

  reset(): void {
    this.batches = 0;
    this.batchMs = 0;
    this.recordedBatches = 0;
    this.recordedMs = 0;
    this.#sizes.clear();
  }

  /** The times of all batches, extrapolated from the busy times of the recorded ones. */
  times(busyMs: readonly Float64Array[]): PhaseTimes {
    const factor = this.recordedMs > 0 ? this.batchMs / this.recordedMs : 1;
    return {
      batchMs: this.batchMs,
      sizes: [...this.#sizes.values()].map(({ tokens, outputs, batches, contexts }) => ({
        tokens,
        outputs,
        batches,
        context: contexts / batches,
      })),
      busyMs: busyMs.map((times) => times.map((ms) => ms * factor)),
    };
  }

  #sizeOf({ tokenCount, outputCount }: Batch): SizeSum {
    const key = tokenCount * 65536 + outputCount;
    let size = this.#sizes.get(key);
    if (!size) {
      size = { tokens: tokenCount, outputs: outputCount, batches: 0, contexts: 0 };
      this.#sizes.set(key, size);
    }
    return size;
  }
}
