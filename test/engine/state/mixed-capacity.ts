// Room, scheduler and backend of the architecture that keeps every kind of state, without an engine around them: so that a test
// can look into the pools and let batches fail.

import { type Backend, type RunOptions, wholeCapacity } from "../../../src/backends/backend.ts";
import { dtypeByName } from "../../../src/dtypes/table.ts";
import { Scheduler } from "../../../src/engine/scheduler.ts";
import type { Sequence } from "../../../src/engine/state/sequence.ts";
import { StateCapacity } from "../../../src/engine/state/state-capacity.ts";
import { cacheOptions, stateKinds } from "../../../src/engine/state/state-kinds.ts";
import { Batch, type BatchSequence, KV_BLOCK_TOKENS } from "../../../src/graph/batch.ts";
import { type Graph, kvGroups } from "../../../src/graph/graph.ts";
import { makePlan } from "../../../src/graph/plan.ts";
import { buildModel } from "../../../src/models/build.ts";
import { mixedName } from "../../support/mixed-arch.ts";
import { tinyModel, tinyShape } from "../../support/tiny-engine.ts";

export const vocab: number = tinyShape.vocab;
const limits = { maxTokens: 32, maxOutputs: 32 };
const contextSize = 320;

/** What becomes of the next batch: it is computed and then fails, or it is given up. */
export type Fault = "fails" | "is given up";

export interface MixedRoom {
  readonly room: StateCapacity;
  readonly scheduler: Scheduler;
  /** Appends tokens and returns the logits of the last one. */
  append(sequence: Sequence, tokens: readonly number[]): Promise<number[]>;
  /** The same for tokens of a new sequence, which is gone afterwards. */
  fresh(tokens: readonly number[]): Promise<number[]>;
  /** Appends tokens in a batch that does not come to its end. */
  fail(sequence: Sequence, tokens: readonly number[], fault: Fault): Promise<void>;
}

/** Room for four contexts; `grows`: one of them is held at first. */
export async function mixedRoom(backend: Backend, grows = false): Promise<MixedRoom> {
  const model = tinyModel({ architecture: mixedName });
  const { graph } = buildModel(model);
  const dtype = dtypeByName("f32")!;
  const kinds = stateKinds(graph, limits);
  const planned = cacheOptions(kinds, { contextSize, contexts: 4, dtype, shared: true });
  const kv = grows ? planned : wholeCapacity(planned);
  await backend.prepare(makePlan(graph, limits), kv);
  for (const weight of graph.weights) {
    await backend.upload(weight, async (target, at) => {
      target.set(model.bytes.get(weight.name)!.subarray(at, at + target.length));
    });
  }
  const room = new StateCapacity({ backend, contextSize, kinds, kv });
  let fault: Fault | undefined;
  const scheduler = new Scheduler({
    backend: poisoned(backend, graph, () => {
      if (fault === "fails") throw new Error("a fault");
    }),
    batch: new Batch(limits),
    promptChunk: 16,
    tokenTile: 1,
    makeRoom: (sequence, count) => room.makeRoom(sequence, count),
    laps: undefined,
  });
  const append: MixedRoom["append"] = async (sequence, tokens) => {
    const logits = new Float32Array(vocab);
    for (let done = 0; done < tokens.length; ) {
      done += await scheduler.advance(sequence, tokens, done, {
        wants: (index) => index === tokens.length - 1,
        onOutput: (_, read) => read("logits", logits),
        stop: () => false,
        phase: tokens.length > 2 ? "prompt" : "generation",
      });
    }
    return [...logits];
  };
  return {
    room,
    scheduler,
    append,
    async fresh(tokens) {
      const sequence = room.newSequence();
      const logits = await append(sequence, tokens);
      sequence.release();
      return logits;
    },
    async fail(sequence, tokens, how) {
      fault = how;
      let asked = 0;
      const given = scheduler.advance(sequence, tokens, 0, {
        wants: () => false,
        onOutput: () => undefined,
        stop: () => how === "is given up" && ++asked > 3, // not at once: in the middle of the batch
      });
      await given.then(
        () => Promise.reject(new Error("the batch was to fail")),
        () => undefined,
      );
      fault = undefined;
    },
  };
}

/** A backend that finds blocks which do not exist where a table has no more use for its entries. */
function poisoned(backend: Backend, graph: Graph, after: () => void): Backend {
  const windows = kvGroups(graph).map(({ window }) => window);
  const run = async (batch: Batch, options?: RunOptions): Promise<void> => {
    const own = batch.sequences.slice(0, batch.tokenCount);
    const copies = new Map<BatchSequence, BatchSequence>();
    own.forEach((sequence, t) => {
      if (!copies.has(sequence))
        copies.set(sequence, poison(sequence, windows, batch.positions[t]!));
      batch.sequences[t] = copies.get(sequence)!;
    });
    try {
      await backend.run(batch, options);
      after();
    } finally {
      own.forEach((sequence, t) => {
        batch.sequences[t] = sequence;
      });
    }
  };
  return Object.assign(Object.create(backend, { wasAhead: { get: () => backend.wasAhead } }), {
    run,
    read: backend.read.bind(backend),
  }) as Backend;
}

/** `first`: the position of its first token in the batch. */
function poison(sequence: BatchSequence, windows: readonly number[], first: number): BatchSequence {
  const groups = sequence.groups!.map((table, group) => {
    const unread = Math.floor((first + 1 - windows[group]!) / KV_BLOCK_TOKENS);
    return unread > 0 ? table.slice().fill(1 << 20, 0, unread) : table;
  });
  return { ...sequence, blocks: groups[0]!, groups, slots: sequence.slots };
}
