// A tiny random model in a backend, and steps on it: what the tests of this folder run.

import type { Backend } from "../../src/backends/backend.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { KV_BLOCK_TOKENS, Step } from "../../src/graph/step.ts";
import { buildModel } from "../../src/models/build.ts";
import { type TinyOptions, tinyModel, tinyShape } from "../support/tiny-engine.ts";

const limits = { maxTokens: 12, maxOutputs: 12 };
const blocks = 4;

/** Steps of these many tokens, one sequence: single tokens, full tiles, tails, over the end of a block. */
const counts = [1, 3, 12, 12, 5, 8, 1, 1];

export async function load(backend: Backend, options: TinyOptions = {}): Promise<void> {
  const model = tinyModel(options);
  const { graph } = buildModel(model);
  const kv = { blocks, dtype: dtypeByName(options.kvType ?? "f16")! };
  await backend.prepare(makePlan(graph, limits), kv);
  for (const weight of graph.weights) {
    await backend.upload(weight, async (target, at) => {
      target.set(model.bytes.get(weight.name)!.subarray(at, at + target.length));
    });
  }
}

/** The logits of every token, step by step. The table of blocks is shuffled. */
export async function runSteps(backend: Backend, options: TinyOptions = {}): Promise<number[][]> {
  const vocab = options.vocab ?? tinyShape.vocab;
  const table = { blocks: Int32Array.of(2, 0, 3, 1) };
  const step = new Step(limits);
  const seen: number[][] = [];
  let position = 0;
  for (const count of counts) {
    step.clear();
    for (let i = 0; i < count; i++, position++) {
      step.add((position * 7 + 3) % vocab, position, table, true);
    }
    await backend.run(step);
    for (let row = 0; row < count; row++) {
      const logits = new Float32Array(vocab);
      await backend.read("logits", row, logits);
      seen.push([...logits]);
    }
  }
  if (position > blocks * KV_BLOCK_TOKENS) throw new Error("more tokens than the cache holds");
  return seen;
}
