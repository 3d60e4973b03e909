// Feed-forward layers with experts beside dense ones that read as many bytes for a token: what the choice of rows costs.
// `node bench/experts.ts [--type q4_0] [--threads 1,2] [--tokens 1,32]`. Both take turns, and times
// are the best of many, because the machine may be busy.
//
// The shapes are Qwen3-30B-A3B's, with fewer layers and experts: 2048 wide, 8 experts of 768 for a token, of 32.

import type { CpuBackend } from "../src/backends/cpu/cpu.ts";
import { measure } from "../src/base/measure.ts";
import type { DType } from "../src/dtypes/dtype.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { Batch } from "../src/graph/batch.ts";
import { GraphBuilder } from "../src/graph/builder.ts";
import { graphCost } from "../src/graph/cost.ts";
import type { Graph, Value, Weight } from "../src/graph/graph.ts";
import { bench, count, counts, text, timed } from "./harness.ts";
import { cpuBackendOf } from "./raw-model.ts";

const [embed, feedForward, experts, used, layers, vocab] = [2048, 768, 32, 8, 6, 256];
const f32 = dtypeByName("f32")!;
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

const table = { blocks: Int32Array.of(0) };

/** Milliseconds of a batch, with other tokens (and so, other experts) each time. */
async function milliseconds(backend: CpuBackend, tokens: number, seed: number): Promise<number> {
  const batch = new Batch({ maxTokens: tokens, maxOutputs: 1 });
  for (let i = 0; i < tokens; i++) {
    batch.add((seed * 31 + i * 11) % vocab, i % 32, table, i === tokens - 1);
  }
  return (await timed(() => backend.run(batch))).ms;
}

const flags = {
  type: text("q4_0"),
  threads: counts([1, 2]),
  tokens: counts([1, 32]),
  rounds: count(60),
};

await bench("node bench/experts.ts", "", flags, async ({ type, rounds, ...given }) => {
  const dtype = dtypeByName(type)!;
  const limits = { maxTokens: Math.max(...given.tokens), maxOutputs: 1 };
  console.log(`${type}, ${layers} layers, ${used} of ${experts} experts of ${feedForward}`);
  for (const threads of given.threads) {
    const contestants = await Promise.all(
      [
        { name: "experts", graph: mixture(dtype) },
        { name: "dense", graph: dense(dtype) },
      ].map(async (one) => ({ ...one, backend: await cpuBackendOf(one.graph, limits, threads) })),
    );
    for (const tokens of given.tokens) {
      const run = ({ backend }: { backend: CpuBackend }, round: number) =>
        milliseconds(backend, tokens, round);
      const { samples } = await measure({ contestants, rounds, run });
      for (const [i, { name, graph }] of contestants.entries()) {
        const best = Math.min(...samples[i]!);
        const cost = graphCost(graph, { tokens, outputs: 1, context: 1, kv: f32 });
        const [bytes, ops] = [cost.weightBytes, cost.int8Ops + cost.halfOps + cost.floatOps];
        const rates = `${(bytes / best / 1e6).toFixed(1)} GB/s, ${(ops / best / 1e6).toFixed(0)} GOPS`;
        console.log(
          `${threads} threads, ${String(tokens).padStart(3)} tokens, ${name.padEnd(7)}: ${(bytes / 1e6).toFixed(0)} MB, ${best.toFixed(2)} ms, ${rates}`,
        );
      }
    }
    for (const { backend } of contestants) backend.dispose();
  }
});
