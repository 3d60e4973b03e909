// An engine's thread whose backend computes nothing: every batch has made-up logits after a given time. bench/host.ts starts it, to
// measure what the host does for each token. It is the real thread otherwise (src/threads/engine.ts).

import { workerData } from "node:worker_threads";
import type { Backend, BestLogits } from "../src/backends/backend.ts";
import { registerBackend } from "../src/backends/table.ts";
import { selectBestOfAll } from "../src/base/select-best.ts";
import type { Plan } from "../src/graph/plan.ts";

export interface HostEngineData {
  /** What a batch takes, and each of its tokens, in ms. */
  readonly batchMs: number;
  readonly tokenMs: number;
  /**
   * Written after each batch: batches, batches of single tokens only, sequences of these, CPU time of the thread in ms; batches with tokens of
   * prompts that follow another such batch, and ms between these.
   */
  readonly numbers: Float64Array;
}

/** Rows of logits that take turns. */
const ROWS = 64;
/** As many as a GPU finds. */
const BEST = 64;

const { batchMs, tokenMs, numbers } = workerData as HostEngineData;

/** Numbers about as far apart as real logits: sums of uniform ones, of a generator with a fixed seed. */
function logitRows(vocab: number): Float32Array[] {
  let state = 0x9e3779b9;
  const next = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  return Array.from({ length: ROWS }, () =>
    Float32Array.from({ length: vocab }, () => 5 * (next() + next() + next() + next() - 2)),
  );
}

function idleBackend(): Backend {
  let vocab = 0;
  let rows: Float32Array[] = [];
  let bests: BestLogits[] = [];
  let turn = 0;
  /** When the last batch ended; undefined: it had no tokens of prompts. */
  let promptEnded: number | undefined;
  const nothing = { weightBytes: 0, kvBytes: 0, workBytes: 0 };
  return {
    name: "idle",
    threads: 1,
    batchTokens: 512,
    supports: () => true,
    measure: () => ({ ...nothing, limitBytes: Number.POSITIVE_INFINITY }),
    prepare: (plan: Plan) => {
      vocab = plan.graph.outputs.logits!.cols;
      rows = logitRows(vocab);
      bests = rows.map((row) => {
        const ids = new Int32Array(BEST);
        selectBestOfAll(row, BEST, ids);
        return { ids, logits: Float32Array.from(ids, (id) => row[id]!) };
      });
    },
    upload: async () => {},
    computesApart: true,
    // As on a GPU, where nothing is drafted by default.
    sameBitsTokens: 1,
    run: async (batch, options) => {
      turn++;
      numbers[0]!++;
      const isPrompt = batch.tokenCount > batch.outputCount;
      if (!isPrompt) {
        numbers[1]!++;
        numbers[2]! += batch.tokenCount;
      } else if (promptEnded !== undefined) {
        numbers[4]!++;
        numbers[5]! += performance.now() - promptEnded;
      }
      const { user, system } = process.threadCpuUsage();
      numbers[3] = (user + system) / 1000;
      const ms = batchMs + tokenMs * batch.tokenCount;
      options?.meanwhile?.();
      await new Promise((resolve) => (ms > 0 ? setTimeout(resolve, ms) : setImmediate(resolve)));
      promptEnded = isPrompt ? performance.now() : undefined;
    },
    read: (_, row, target) => target.set(rows[(turn + row) % ROWS]!),
    mostBest: BEST,
    readBest: (row, { ids, logits }) => {
      const { ids: found, logits: values } = bests[(turn + row) % ROWS]!;
      for (let i = 0; i < ids.length; i++) {
        ids[i] = found[i]!;
        logits[i] = values[i]!;
      }
      return true;
    },
    copyKvBlock: () => {},
    memory: () => nothing,
    explain: () => [],
    dispose: () => {},
  };
}

registerBackend({ name: "idle", available: () => true, create: idleBackend });
await import("../src/threads/engine.ts");
