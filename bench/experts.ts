// Feed-forward layers with experts beside dense ones that read as many bytes for a token: what the choice of rows costs. Not a
// test: it asserts nothing. `node bench/experts.ts [--type q4_0] [--threads 1,2] [--tokens 1,32]`. Both take turns, and times
// are the best of many, because the machine may be busy.
//
// The shapes are Qwen3-30B-A3B's, with fewer layers and experts: 2048 wide, 8 experts of 768 for a token, of 32.

import { parseArgs } from "node:util";
import { evenRoom } from "../src/backends/backend.ts";
import { CpuBackend } from "../src/backends/cpu/cpu.ts";
import { nativeKernels } from "../src/backends/cpu/native/native.ts";
import type { DType } from "../src/dtypes/dtype.ts";
import { sampleBlocks } from "../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { Batch } from "../src/graph/batch.ts";
import { GraphBuilder } from "../src/graph/builder.ts";
import { graphCost } from "../src/graph/cost.ts";
import type { Graph, Value, Weight } from "../src/graph/graph.ts";
import { makePlan } from "../src/graph/plan.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { nodeNative } from "../src/platform/node-native.ts";

const { values } = parseArgs({
  options: {
    type: { type: "string", default: "q4_0" },
    threads: { type: "string", default: "1,2" },
    tokens: { type: "string", default: "1,32" },
    rounds: { type: "string", default: "60" },
  },
});
const [embed, feedForward, experts, used, layers, vocab] = [2048, 768, 32, 8, 6, 256];
const f32 = dtypeByName("f32")!;
const numbers = (text: string) => text.split(",").map(Number);
const most = Math.max(...numbers(values.tokens));
const limits = { maxTokens: most, maxOutputs: 1 };
const weight = (name: string, shape: number[], dtype: DType): Weight => ({ name, shape, dtype });

/** Layers of one kind behind each other, each added to what came before. */
function stack(layerOf: (g: GraphBuilder, x: Value, layer: number) => Value): Graph {
  const g = new GraphBuilder();
  let x = g.embed(weight("table", [vocab, embed], f32), "embed"); // [tokens, embed]
  for (let layer = 0; layer < layers; layer++) {
    const norm = g.rmsNorm(x, weight(`norm ${layer}`, [embed], f32), 1e-5, `norm ${layer}`);
    x = g.add(x, layerOf(g, norm, layer), `residual ${layer}`); // [tokens, embed]
  }
  return g.finish({ hidden: g.select(x, "hidden") });
}

const routing = { used, gating: "softmax", normalise: true, scale: 1 } as const;

function mixture(dtype: DType): Graph {
  return stack((g, x, layer) => {
    const exps = (name: string, rows: number, cols: number) =>
      weight(`${name} ${layer}`, [experts, rows, cols], dtype);
    const logits = g.matmul(x, weight(`router ${layer}`, [experts, embed], f32), "logits");
    const routes = g.route(logits, routing, "routes"); // [tokens, 2 * used]
    const gate = g.matmulId(x, routes, exps("gate", feedForward, embed), "gate");
    const up = g.matmulId(x, routes, exps("up", feedForward, embed), "up");
    const inner = g.gate(gate, up, "silu", "inner"); // [tokens, used * feedForward]
    const down = g.matmulId(inner, routes, exps("down", embed, feedForward), "down");
    return g.combine(down, routes, "combined"); // [tokens, embed]
  });
}

/** As wide as all experts of a token together. */
function dense(dtype: DType): Graph {
  const wide = used * feedForward;
  return stack((g, x, layer) => {
    const gate = g.matmul(x, weight(`gate ${layer}`, [wide, embed], dtype), "gate");
    const up = g.matmul(x, weight(`up ${layer}`, [wide, embed], dtype), "up");
    const inner = g.gate(gate, up, "silu", "inner"); // [tokens, wide]
    return g.matmul(inner, weight(`down ${layer}`, [embed, wide], dtype), "down");
  });
}

async function load(graph: Graph, threads: number): Promise<CpuBackend> {
  const native = nativeKernels(nodeNative());
  const startThread = () => nodePlatform.startThread("compute");
  const backend = new CpuBackend({ level: 3, threads, startThread, native });
  backend.prepare(makePlan(graph, limits), evenRoom(1, f32));
  for (const each of graph.weights) {
    // A stretch of samples, again and again: which values they are makes no difference to the time.
    const sample = samplesOf(each.dtype);
    await backend.upload(each, async (target) => {
      for (let at = 0; at < target.length; at += sample.length) {
        target.set(sample.subarray(0, Math.min(sample.length, target.length - at)), at);
      }
    });
  }
  return backend;
}

const samples = new Map<DType, Uint8Array>();

function samplesOf(dtype: DType): Uint8Array {
  const known = samples.get(dtype) ?? sampleBlocks(dtype, 1 << 18);
  samples.set(dtype, known);
  return known;
}

const table = { blocks: Int32Array.of(0) };

/** Milliseconds of a batch, with other tokens (and so, other experts) each time. */
async function milliseconds(backend: CpuBackend, tokens: number, seed: number): Promise<number> {
  const step = new Batch(limits);
  for (let i = 0; i < tokens; i++) {
    step.add((seed * 31 + i * 11) % vocab, i % 32, table, i === tokens - 1);
  }
  const start = performance.now();
  await backend.run(step);
  return performance.now() - start;
}

const dtype = dtypeByName(values.type)!;
const graphs = [
  { name: "experts", graph: mixture(dtype) },
  { name: "dense", graph: dense(dtype) },
];
console.log(`${values.type}, ${layers} layers, ${used} of ${experts} experts of ${feedForward}`);
for (const threads of numbers(values.threads)) {
  const loaded = await Promise.all(
    graphs.map(async (each) => ({ ...each, backend: await load(each.graph, threads) })),
  );
  for (const tokens of numbers(values.tokens)) {
    const best = loaded.map(() => Number.POSITIVE_INFINITY);
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const [i, { backend }] of loaded.entries()) {
        best[i] = Math.min(best[i]!, await milliseconds(backend, tokens, round));
      }
    }
    for (const [i, { name, graph }] of loaded.entries()) {
      const cost = graphCost(graph, { tokens, outputs: 1, context: 1, kv: f32 });
      const [bytes, ops] = [cost.weightBytes, cost.int8Ops + cost.halfOps + cost.floatOps];
      const rates = `${(bytes / best[i]! / 1e6).toFixed(1)} GB/s, ${(ops / best[i]! / 1e6).toFixed(0)} GOPS`;
      console.log(
        `${threads} threads, ${String(tokens).padStart(3)} tokens, ${name.padEnd(7)}: ${(bytes / 1e6).toFixed(0)} MB, ${best[i]!.toFixed(2)} ms, ${rates}`,
      );
    }
  }
  for (const { backend } of loaded) backend.dispose();
}
