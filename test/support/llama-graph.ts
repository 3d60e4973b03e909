// Layers as a Llama has them, straight from the builder: sizes at which matrices can be stacked.

import { dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph, Rope, Weight } from "../../src/graph/graph.ts";

const f32 = dtypeByName("f32")!;
const [heads, headDim] = [4, 32];

export const llamaVocab = 40;

/** `size`: rows and columns of most matrices are so many times as many. */
export function llamaGraph(type: string, layers: number, size = 1, kvHeads = 2): Graph {
  const [embed, hidden] = [256 * size, 512 * size];
  const dtype = dtypeByName(type)!;
  const g = new GraphBuilder();
  const vector = (name: string, size: number): Weight => ({ name, shape: [size], dtype: f32 });
  const matrix = (name: string, rows: number, cols: number): Weight => {
    return { name, shape: [rows, cols], dtype };
  };
  const frequencies = Float32Array.from({ length: headDim / 2 }, (_, i) => 100 ** (-i / headDim));
  const rope: Rope = { layout: "half", dims: headDim, frequencies, magnitude: 1 };
  let x = g.embed({ name: "table", shape: [llamaVocab, embed], dtype: f32 }, "embed");
  for (let layer = 0; layer < layers; layer++) {
    const own = (name: string) => `blk.${layer}.${name}`;
    g.layer(layer);
    const normed = g.rmsNorm(x, vector(own("norm1"), embed), 1e-5, "norm1");
    const project = (name: string, rows: number) =>
      g.matmul(normed, matrix(own(name), rows, embed), name);
    const q = project("q", heads * headDim);
    const k = project("k", kvHeads * headDim);
    const v = project("v", kvHeads * headDim);
    const cols = kvHeads * headDim;
    const state = g.state({ kind: "kv", layer, kCols: cols, vCols: cols });
    const roped = g.rope(q, headDim, rope, "q_rope");
    g.kvWrite(g.rope(k, headDim, rope, "k_rope"), v, state);
    const shape = { state, heads, kvHeads, headDim, scale: headDim ** -0.5 };
    const attended = g.attention(roped, shape, "attention");
    const o = g.matmul(attended, matrix(own("o"), embed, heads * headDim), "o");
    const y = g.add(x, o, "residual1");
    const normed2 = g.rmsNorm(y, vector(own("norm2"), embed), 1e-5, "norm2");
    const gate = g.matmul(normed2, matrix(own("gate"), hidden, embed), "gate");
    const up = g.matmul(normed2, matrix(own("up"), hidden, embed), "up");
    const act = g.gate(gate, up, "silu", "silu");
    const down = g.matmul(act, matrix(own("down"), embed, hidden), "down");
    x = g.add(y, down, "residual2");
  }
  g.layer(undefined);
  const last = g.rmsNorm(g.select(x, "select"), vector("norm", embed), 1e-5, "norm");
  const logits = g.logits(last, matrix("output", llamaVocab, embed), "logits");
  return g.finish({ hidden: last, logits });
}
