// Multi-head latent attention (DeepSeek 2, Kimi Linear, MiniCPM 3, PLM): keys and values of all heads are computed from one short vector per token. Files with
// attn_k_b and attn_v_b hold the matrices such that the cache keeps only this vector, and attention is over one KV head.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Rope, Value, Weight } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import type { Temperature } from "./attention.ts";
import { linear, linearWeights } from "./linear.ts";
import { repeated } from "./repeat.ts";

export interface LatentShape {
  readonly heads: number;
  /** Values of a head of queries and keys: its own, without positions, and the ones with keys that all heads share, with positions. */
  readonly nopeDim: number;
  readonly ropeDim: number;
  readonly vHeadDim: number;
  /** Values of the vector that keys and values are computed from. */
  readonly kvRank: number;
  /** Values of the vector that queries are computed from; 0: they are computed from the hidden state. */
  readonly qRank: number;
  /** The file has attn_k_b and attn_v_b, not attn_kv_b. */
  readonly absorbed: boolean;
  /** undefined: there are no positions. */
  readonly rope: Rope | undefined;
  readonly scale: number;
  readonly normEps: number;
  readonly temperature?: Temperature | undefined;
  /** The divisors of rope's frequencies. */
  readonly ropeFactors?: Weight | undefined;
  /** Attention's result is gated by sigmoids of attn_gate, one for each head or for each value. Default: it is not gated. */
  readonly gate?: "heads" | "values" | undefined;
  /** The keys that all heads share are normed before their rotation (attn_k_norm). Default: false. */
  readonly keyNorm?: boolean;
  /** Tokens that a token attends to, itself included; only where matrices are absorbed. Default: all. */
  readonly window?: number | undefined;
}

/** The positions that tokens attend to, [tokens, most], from the vector that queries are computed from; undefined: all. */
export type Choose = (queries: Value) => Value | undefined;

/** [tokens, embed] -> [tokens, embed] */
export function latentAttention(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  shape: LatentShape,
  choose: Choose = () => undefined,
): Value {
  const { heads, nopeDim, ropeDim, vHeadDim, kvRank, rope, scale } = shape;
  const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
  const norm = (value: Value, name: string) => g.rmsNorm(value, weight(name), shape.normEps, name);
  const turned = (value: Value, name: string) =>
    rope ? g.rope(value, ropeDim, rope, name, shape.ropeFactors) : value;
  const tempered = (value: Value) =>
    shape.temperature ? g.temperature(value, shape.temperature, "attn_q_temperature") : value;

  const output = (attended: Value) => {
    if (!shape.gate) return linear(g, w, attended, layer, "attn_output"); // [tokens, embed]
    const own = linear(g, w, x, layer, "attn_gate"); // [tokens, heads], or [tokens, heads * v]
    const gate = repeated(g, own, attended.cols / own.cols, "attn_gate_heads", heads); // [tokens, heads * v]
    return linear(g, w, g.gate(gate, attended, "sigmoid", "attn_gated"), layer, "attn_output");
  };

  const low = shape.qRank === 0 ? x : norm(linear(g, w, x, layer, "attn_q_a"), "attn_q_a_norm"); // [tokens, qRank], or [tokens, embed]
  const chosen = choose(low); // [tokens, most]
  const q = linear(g, w, low, layer, shape.qRank === 0 ? "attn_q" : "attn_q_b"); // [tokens, heads * (nope + rope)]
  const qNope = g.slice(q, 0, nopeDim, "attn_q_nope", heads); // [tokens, heads * nope]
  const qPe = g.slice(q, nopeDim, ropeDim, "attn_q_pe", heads); // [tokens, heads * rope]
  const qTurned = turned(qPe, "attn_q_rope"); // [tokens, heads * rope]
  const latent = linear(g, w, x, layer, "attn_kv_a_mqa"); // [tokens, kvRank + rope]
  const kPe = g.slice(latent, kvRank, ropeDim, "attn_k_pe"); // [tokens, rope]
  const kNormed = shape.keyNorm ? norm(kPe, "attn_k_norm") : kPe; // [tokens, rope]
  const kTurned = turned(kNormed, "attn_k_rope"); // [tokens, rope]
  const kv = norm(g.slice(latent, 0, kvRank, "attn_kv_a"), "attn_kv_a_norm"); // [tokens, kvRank]

  if (!shape.absorbed) {
    const both = linear(g, w, kv, layer, "attn_kv_b"); // [tokens, heads * (nope + v)]
    const kNope = g.slice(both, 0, nopeDim, "attn_k_nope", heads); // [tokens, heads * nope]
    const v = g.slice(both, nopeDim, vHeadDim, "attn_v", heads); // [tokens, heads * v]
    const headDim = nopeDim + ropeDim;
    const sizes = { kCols: heads * headDim, vCols: heads * vHeadDim };
    const state = g.state({ kind: "kv", layer, ...sizes });
    g.kvWrite(g.concat(kNope, repeated(g, kTurned, heads, "attn_k_pe"), "attn_k", heads), v, state);
    const query = tempered(g.concat(qNope, qTurned, "attn_q_all", heads)); // [tokens, heads * headDim]
    const options = { state, heads, kvHeads: heads, headDim, vHeadDim, scale };
    return output(g.attention(query, options, "attn")); // [tokens, embed]
  }

  // Each head has a matrix of its own, as an expert has: head h reads matrix h.
  const routing = { used: heads, gating: "all", normalise: false, scale: 1 } as const;
  const first = g.slice(q, 0, 1, "attn_heads", heads); // [tokens, heads]
  const routes = g.route(first, routing, "attn_route"); // [tokens, 2 * heads]
  const absorbed = g.matmulId(qNope, routes, weight("attn_k_b"), "attn_k_b"); // [tokens, heads * kvRank]
  const query = tempered(g.concat(absorbed, qTurned, "attn_q_all", heads)); // [tokens, heads * (kvRank + rope)]
  const headDim = kvRank + ropeDim;
  const { window } = shape;
  const sizes = { kCols: headDim, vCols: kvRank, ...(window !== undefined && { window }) };
  const state = g.state({ kind: "kv", layer, ...sizes });
  g.kvWrite(g.concat(kv, kTurned, "attn_k"), kv, state);
  const options = { state, heads, kvHeads: 1, headDim, vHeadDim: kvRank, scale };
  const attended = chosen
    ? g.sparseAttention(query, chosen, options, "attn")
    : g.attention(query, options, "attn"); // [tokens, heads * kvRank]
  const v = g.matmulId(attended, routes, weight("attn_v_b"), "attn_v_b"); // [tokens, heads * v]
  return output(v); // [tokens, embed]
}

/** The weights that latentAttention() reads. */
export function latentWeights(embed: number, layer: number, shape: LatentShape): WeightSpec[] {
  const { heads, nopeDim, ropeDim, vHeadDim, kvRank, qRank } = shape;
  const named = (name: string, ...dims: number[]) => ({
    name: `blk.${layer}.${name}.weight`,
    shape: dims,
  });
  const qCols = heads * (nopeDim + ropeDim);
  return [
    ...(qRank === 0
      ? linearWeights(layer, "attn_q", [qCols, embed])
      : [
          ...linearWeights(layer, "attn_q_a", [qRank, embed]),
          named("attn_q_a_norm", qRank),
          ...linearWeights(layer, "attn_q_b", [qCols, qRank]),
        ]),
    ...linearWeights(layer, "attn_kv_a_mqa", [kvRank + ropeDim, embed]),
    named("attn_kv_a_norm", kvRank),
    ...(shape.keyNorm ? [named("attn_k_norm", ropeDim)] : []),
    ...(shape.absorbed
      ? [named("attn_k_b", heads, kvRank, nopeDim), named("attn_v_b", heads, vHeadDim, kvRank)]
      : linearWeights(layer, "attn_kv_b", [heads * (nopeDim + vHeadDim), kvRank])),
    ...(shape.gate
      ? linearWeights(layer, "attn_gate", [heads * (shape.gate === "heads" ? 1 : vHeadDim), embed])
      : []),
    ...linearWeights(layer, "attn_output", [embed, heads * vHeadDim]),
  ];
}
