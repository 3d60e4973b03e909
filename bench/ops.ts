// The cases of the conformance table (test/conformance/op-cases.ts) as micro-benchmarks: what each op takes at the size of a
// real model, on one thread. Not a test: it asserts nothing. `node bench/ops.ts [part of a name] [--tokens 32]`. Times are
// the best of many short rounds, because the machine may be busy; GB/s counts the bytes of inputs, weights and results.

import { parseArgs } from "node:util";
import { CpuBackend } from "../src/backends/cpu/cpu.ts";
import { nativeKernels } from "../src/backends/cpu/native/native.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { Batch } from "../src/graph/batch.ts";
import { graphCost } from "../src/graph/cost.ts";
import { makePlan } from "../src/graph/plan.ts";
import { nodeNative } from "../src/platform/node-native.ts";
import { benchCases } from "../test/conformance/table.ts";

const { values, positionals } = parseArgs({
  options: { tokens: { type: "string", default: "1" } },
  allowPositionals: true,
});
const tokens = Number(values.tokens);
const limits = { maxTokens: tokens, maxOutputs: tokens };
const kv = dtypeByName("f32")!;
const native = nativeKernels(nodeNative());

console.log(
  `${typeof native === "string" ? `wasm (${native})` : native.target.name}, ${tokens} tokens`,
);
for (const { name, make } of benchCases()) {
  if (!name.includes(positionals[0] ?? "")) continue;
  const { graph, bytesOf, vocab } = make();
  const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined, native });
  backend.prepare(makePlan(graph, limits), { blocks: 4, slots: 2, dtype: kv });
  for (const weight of graph.weights) {
    const bytes = bytesOf(weight);
    await backend.upload(weight, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
  const step = new Batch(limits);
  const table = { blocks: Int32Array.of(0, 1, 2, 3), slots: { from: 0, to: 1 } };
  for (let i = 0; i < tokens; i++) step.add((i * 11 + 3) % vocab, i, table, true);
  const best = await seconds(async () => await backend.run(step));
  const cost = graphCost(graph, { tokens, outputs: tokens, context: (tokens + 1) / 2, kv });
  const bytes = cost.weightBytes + cost.kvBytes + cost.valueBytes;
  const rate = (bytes / best / 1e9).toFixed(1);
  console.log(
    `${name.padEnd(44)} ${(best * 1e6).toFixed(1).padStart(9)} us ${rate.padStart(7)} GB/s`,
  );
  backend.dispose();
}

/** Of one call: the best of 20 rounds of about 5 ms, after a warm-up. */
async function seconds(work: () => Promise<void>): Promise<number> {
  let calls = 1;
  while ((await round(work, calls)) < 0.005 && calls < 1e5) calls *= 2;
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 20; i++) best = Math.min(best, (await round(work, calls)) / calls);
  return best;
}

async function round(work: () => Promise<void>, calls: number): Promise<number> {
  const start = performance.now();
  for (let i = 0; i < calls; i++) await work();
  return (performance.now() - start) / 1000;
}
