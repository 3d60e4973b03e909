// A tiny random model in a backend, and batches on it: what the tests of this folder run.

import { type Backend, evenCapacity } from "../../src/backends/backend.ts";

import { Batch, KV_BLOCK_TOKENS } from "../../src/graph/batch.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { kvOf } from "../support/kv.ts";
import { type TinyOptions, tinyModel, tinyShape } from "../support/tiny-engine.ts";

const limits = { maxTokens: 12, maxOutputs: 12 };
const blocks = 4;

/** Batches of these many tokens, one sequence: single tokens, full tiles, tails, over the end of a block. */
const counts = [1, 3, 12, 12, 5, 8, 1, 1];

export async function load(backend: Backend, options: TinyOptions = {}): Promise<void> {
  const model = tinyModel(options);
  const { graph } = buildModel(model);
  const kv = evenCapacity(blocks, kvOf(options.kvType ?? "f16"));
  await backend.prepare(makePlan(graph, limits), kv);
  for (const weight of graph.weights) {
    await backend.upload(weight, async (target, at) => {
      target.set(model.bytes.get(weight.name)!.subarray(at, at + target.length));
    });
  }
}

/** The logits of every token, batch by batch. The table of blocks is shuffled. */
export async function runBatches(backend: Backend, options: TinyOptions = {}): Promise<number[][]> {
  const vocab = options.vocab ?? tinyShape.vocab;
  const table = { blocks: Int32Array.of(2, 0, 3, 1) };
  const batch = new Batch(limits);
  const seen: number[][] = [];
  let position = 0;
  for (const count of counts) {
    batch.clear();
    for (let i = 0; i < count; i++, position++) {
      batch.add((position * 7 + 3) % vocab, position, table, true);
    }
    await backend.run(batch);
    for (let row = 0; row < count; row++) {
      const logits = new Float32Array(vocab);
      await backend.read("logits", row, logits);
      seen.push([...logits]);
    }
  }
  if (position > blocks * KV_BLOCK_TOKENS) throw new Error("more tokens than the cache holds");
  return seen;
}
