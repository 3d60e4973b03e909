// The cases of the conformance table (test/conformance/table.ts) as micro-benchmarks, on one thread: every op at the size of a
// real model, and matmuls of every tensor type.
//
//     npm run bench:ops -- [part of a name] [--tokens 1,8,64]
//
// Times are the best of many short rounds, because the machine may be busy. GB/s counts the bytes of inputs, weights and
// results, GFLOP/s a multiply-add as two. The limit is that of this machine ("lantern machine") for the same bytes and
// operations; values that stay in a cache smaller than the measured ones can exceed it.

import { evenCapacity } from "../src/backends/backend.ts";
import { CpuBackend } from "../src/backends/cpu/cpu.ts";
import { nativeKernels } from "../src/backends/cpu/native/native.ts";
import { UsageError } from "../src/base/errors.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { Batch } from "../src/graph/batch.ts";
import { type Cost, graphCost } from "../src/graph/cost.ts";
import { makePlan } from "../src/graph/plan.ts";
import { deviceAt } from "../src/limits/device.ts";
import { limitOf } from "../src/limits/roofline.ts";
import { machineMeasurement } from "../src/machine/machine.ts";
import { nodeNative } from "../src/platform/node-native.ts";
import { type BenchCase, benchCases } from "../test/conformance/table.ts";
import { bench, counts, timed } from "./harness.ts";

const kv = dtypeByName("f32")!;
/** Blocks of the KV cache: room for 128 tokens. */
const blocks = Int32Array.of(0, 1, 2, 3);
const native = nativeKernels(nodeNative());
const machine = await machineMeasurement({ onNote: (note) => console.error(note) });

const flags = { tokens: counts() };
await bench("npm run bench:ops --", "[NAME]", flags, async ({ tokens: asked }, [part = ""]) => {
  if (asked?.some((one) => one > 128)) {
    throw new UsageError(`--tokens: got ${asked}, expected numbers from 1 to 128, as in 1,8,64`);
  }
  const cases = benchCases().filter(({ name }) => name.includes(part));
  if (cases.length === 0) throw new UsageError(`no case has "${part}" in its name`);
  const lowering = typeof native === "string" ? `wasm (${native})` : native.target.name;
  console.log(`${lowering}, 1 thread, ${machine.cpu}`);
  const columns = [`${"us".padStart(10)}`, "GB/s".padStart(7), "GFLOP/s".padStart(8)].join(" ");
  console.log(`${"".padEnd(44)} tokens ${columns} % of limit`);
  for (const each of cases) await measureCase(each, asked);
});

async function measureCase(
  { name, make, tokens: usual }: BenchCase,
  asked: readonly number[] | undefined,
): Promise<void> {
  const counts = asked ?? usual;
  const { graph, bytesOf, vocab } = make();
  const limits = { maxTokens: Math.max(...counts), maxOutputs: Math.max(...counts) };
  const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined, native });
  backend.prepare(makePlan(graph, limits), { ...evenCapacity(blocks.length, kv), slots: 2 });
  for (const weight of graph.weights) {
    const bytes = bytesOf(weight);
    await backend.upload(weight, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
  for (const tokens of counts) {
    const batch = new Batch(limits);
    const sequence = { blocks, slots: { from: 0, to: 1 } };
    for (let i = 0; i < tokens; i++) batch.add((i * 11 + 3) % vocab, i, sequence, true);
    const best = await seconds(async () => await backend.run(batch));
    const cost = graphCost(graph, { tokens, outputs: tokens, context: (tokens + 1) / 2, kv });
    console.log(`${name.padEnd(44)} ${String(tokens).padStart(6)} ${rates(cost, best)}`);
  }
  backend.dispose();
}

function rates(cost: Cost, best: number): string {
  const bytes = cost.weightBytes + cost.kvBytes + cost.valueBytes;
  const ops = cost.floatOps + cost.halfOps + cost.int8Ops;
  const limit = limitOf({ ...cost, bytes }, deviceAt(machine, 1, bytes));
  return [
    (best * 1e6).toFixed(1).padStart(10),
    (bytes / best / 1e9).toFixed(1).padStart(7),
    (ops / best / 1e9).toFixed(1).padStart(8),
    `${((100 * limit.seconds) / best).toFixed(0).padStart(4)} % (${limit.resource})`,
  ].join(" ");
}

/** Of one call: the best of 20 rounds of about 5 ms, after a warm-up. */
async function seconds(work: () => Promise<void>): Promise<number> {
  const round = async (calls: number): Promise<number> => {
    const { ms } = await timed(async () => {
      for (let i = 0; i < calls; i++) await work();
    });
    return ms / 1000;
  };
  let calls = 1;
  while ((await round(calls)) < 0.005 && calls < 1e5) calls *= 2;
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 20; i++) best = Math.min(best, (await round(calls)) / calls);
  return best;
}
