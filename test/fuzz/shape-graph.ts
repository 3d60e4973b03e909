// The graphs of the fuzz target "shapes": the embedding of a table, the op in question, and the rows that are wanted.

import type { DType } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Activation, Graph, RopeLayout, Value, Weight } from "../../src/graph/graph.ts";
import type { ShapeCase } from "./shape-case.ts";

const f32 = dtypeByName("f32")!;
/** Rows of tables: no multiple of anything. */
const VOCAB = 23;

const weight = (name: string, shape: number[], dtype: DType = f32): Weight => ({
  name,
  shape,
  dtype,
});

type Make = (g: GraphBuilder, x: Value, c: ShapeCase) => Value;

const activation =
  (kind: Activation): Make =>
  (g, x) =>
    g.activate(x, kind, "out");

const gate =
  (kind: Activation): Make =>
  (g, x) =>
    g.gate(x, g.scale(x, 0.7, "up"), kind, "out");

const rope =
  (layout: RopeLayout, hasFactors: boolean): Make =>
  (g, x, { headDim, dims }) => {
    const frequencies = Float32Array.from({ length: dims / 2 }, (_, i) => 1 / 10 ** (i / 3));
    const factors = hasFactors ? weight("factors", [dims / 2]) : undefined;
    return g.rope(x, headDim, { layout, dims, frequencies, magnitude: 1.1 }, "out", factors);
  };

const product =
  (hasBias: boolean): Make =>
  (g, x, { rows, type }) => {
    const bias = hasBias ? weight("bias", [rows]) : undefined;
    return g.matmul(x, weight("w", [rows, x.cols], dtypeByName(type)!), "out", bias);
  };

/** Two products that share their activations, as q and k do. */
const products: Make = (g, x, { rows, type }) => {
  const [a, b] = ["a", "b"].map((name) =>
    g.matmul(x, weight(`w_${name}`, [rows, x.cols], dtypeByName(type)!), name),
  );
  return g.add(a!, b!, "out");
};

const attention: Make = (g, x, { headDim, kvHeads, sharing }) => {
  const cols = kvHeads * headDim;
  const [k, v] = ["k", "v"].map((name) => g.embed(weight(`${name}_table`, [VOCAB, cols]), name));
  const state = g.state({ kind: "kv", layer: 0, kCols: cols, vCols: cols });
  g.kvWrite(k!, v!, state);
  const shape = { state, heads: kvHeads * sharing, kvHeads, headDim };
  return g.attention(x, { ...shape, scale: 1 / Math.sqrt(headDim) }, "out");
};

/** A whole layer, as models have it: what stages and shared slots do is only seen in one. */
const layer: Make = (g, x, c) => {
  const { headDim, kvHeads, sharing, rows, type, dims } = c;
  const dtype = dtypeByName(type)!;
  const typed = (name: string, n: number, k: number): Weight =>
    weight(name, [n, k], k % dtype.blockElems === 0 ? dtype : f32);
  const heads = kvHeads * sharing;
  const frequencies = Float32Array.from({ length: dims / 2 }, (_, i) => 1 / 10 ** (i / 3));
  const turned = { layout: "half", dims, frequencies, magnitude: 1 } as const;
  const norm = g.rmsNorm(x, weight("attn_norm", [x.cols]), 1e-5, "attn_norm");
  const project = (name: string, n: number) =>
    g.matmul(norm, typed(name, n, x.cols), name, weight(`${name}_bias`, [n]));
  const q = g.rope(project("q", heads * headDim), headDim, turned, "q_rope");
  const k = g.rope(project("k", kvHeads * headDim), headDim, turned, "k_rope");
  const cols = kvHeads * headDim;
  const state = g.state({ kind: "kv", layer: 0, kCols: cols, vCols: cols });
  g.kvWrite(k, project("v", cols), state);
  const shape = { state, heads, kvHeads, headDim, scale: 1 / Math.sqrt(headDim) };
  const mixed = g.attention(q, shape, "attention");
  const attended = g.matmul(mixed, typed("o", x.cols, heads * headDim), "o");
  const middle = g.add(x, attended, "attn_residual");
  const again = g.rmsNorm(middle, weight("ffn_norm", [x.cols]), 1e-5, "ffn_norm");
  const [gated, up] = ["gate", "up"].map((name) =>
    g.matmul(again, typed(name, rows, x.cols), name),
  );
  const active = g.gate(gated!, up!, "silu", "silu");
  return g.add(middle, g.matmul(active, typed("down", x.cols, rows), "down"), "out");
};

const makers: Readonly<Record<string, Make>> = {
  embed: (_, x) => x,
  rms_norm: (g, x) => g.rmsNorm(x, weight("norm", [x.cols]), 1e-5, "out"),
  head_norm: (g, x, { headDim }) => g.rmsNorm(x, weight("norm", [headDim]), 1e-5, "out"),
  layer_norm: (g, x) => g.layerNorm(x, weight("norm", [x.cols]), undefined, 1e-5, "out"),
  layer_norm_bias: (g, x) =>
    g.layerNorm(x, weight("norm", [x.cols]), weight("norm_bias", [x.cols]), 1e-5, "out"),
  matmul: product(false),
  matmul_bias: product(true),
  products,
  silu: activation("silu"),
  gelu: activation("gelu"),
  relu: activation("relu"),
  gate_silu: gate("silu"),
  gate_gelu: gate("gelu"),
  add: (g, x) => g.add(x, g.scale(x, 0.3, "half"), "out"),
  mul: (g, x) => g.mul(x, g.scale(x, 0.3, "half"), "out"),
  scale: (g, x) => g.scale(x, 0.37, "out"),
  softcap: (g, x) => g.softcap(x, 30, "out"),
  softmax: (g, x) => g.softmax(x, "out"),
  rope_interleaved: rope("interleaved", false),
  rope_half: rope("half", true),
  attention,
  layer,
};

export const shapeOps: readonly string[] = Object.keys(makers);

/** Ops that have a cache. */
export function hasCache({ op }: Pick<ShapeCase, "op">): boolean {
  return op === "attention" || op === "layer";
}

/** Ops whose columns are heads. */
export function hasHeads({ op }: Pick<ShapeCase, "op">): boolean {
  return op === "attention" || op === "head_norm" || op.startsWith("rope_");
}

/** Ops that read weights of `type`. */
export function isProduct({ op }: Pick<ShapeCase, "op">): boolean {
  return op.startsWith("matmul") || op === "products" || op === "layer";
}

/** The op on embedded tokens; "embed" itself reads a table of the type. */
export function shapeGraph(c: ShapeCase): Graph {
  const heads = c.kvHeads * c.sharing;
  const cols = hasHeads(c) ? heads * c.headDim : c.cols;
  const g = new GraphBuilder();
  const tableType = c.op === "embed" ? dtypeByName(c.type)! : f32;
  const x = g.embed(weight("table", [VOCAB, cols], tableType), "x");
  const out = makers[c.op]!(g, x, c);
  return g.finish({ logits: g.select(out, "output") });
}
