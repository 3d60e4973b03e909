// Attention over a compressed cache (MLA), in its absorbed form and without rope: keys and values of all heads are made from one
// row of the cache, so queries are brought to that row's columns instead, and results back from them.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import { linear, linearRows, linearWeights } from "./linear.ts";

export interface MlaShape {
  readonly layer: number;
  readonly normEps: number;
  readonly heads: number;
  /** Columns of the compressed row, and of the part of the keys that all heads share. */
  readonly rank: number;
  readonly sharedDim: number;
  /** Columns of a head of queries, the shared part included, and of values. */
  readonly keyDim: number;
  readonly vDim: number;
}

/** [tokens, embed] -> [tokens, embed] */
export function mlaWithoutRope(g: GraphBuilder, w: WeightLookup, x: Value, shape: MlaShape): Value {
  const { layer, heads, rank, sharedDim, keyDim, normEps } = shape;
  const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
  const ownDim = keyDim - sharedDim;
  const headDim = rank + sharedDim;
  const compressed = (name: string, from: number, count: number) =>
    linearRows(g, w, x, { layer, fused: "attn_kv_a_mqa", name, from, count });

  const q = linear(g, w, x, layer, "attn_q"); // [tokens, heads * keyDim]
  const own = g.slice(q, 0, ownDim, "attn_q_own", heads); // [tokens, heads * ownDim]
  const shared = g.slice(q, ownDim, sharedDim, "attn_q_shared", heads); // [tokens, heads * sharedDim]
  const row = g.rmsNorm(
    compressed("attn_kv_row", 0, rank),
    weight("attn_kv_a_norm"),
    normEps,
    "attn_kv_a_norm",
  ); // [tokens, rank]
  const key = g.concat(row, compressed("attn_k_shared", rank, sharedDim), "attn_k"); // [tokens, headDim]
  const state = g.state({ kind: "kv", layer, kCols: headDim, vCols: rank });
  g.kvWrite(key, row, state);
  const each = headRoutes(g, x, heads); // [tokens, 2 * heads]
  const absorbed = g.matmulId(own, each, weight("attn_k_b"), "attn_k_b"); // [tokens, heads * rank]
  const query = g.concat(absorbed, shared, "attn_q_absorbed", heads); // [tokens, heads * headDim]
  const scale = 1 / Math.sqrt(keyDim);
  const options = { state, heads, kvHeads: 1, headDim, vHeadDim: rank, scale };
  const attended = g.attention(query, options, "attn"); // [tokens, heads * rank]
  const values = g.matmulId(attended, each, weight("attn_v_b"), "attn_v_b"); // [tokens, heads * vDim]
  return linear(g, w, values, layer, "attn_output"); // [tokens, embed]
}

/** Routes on which slot h is expert h: matrices of heads are multiplied as those of experts are. [tokens, 2 * heads] */
function headRoutes(g: GraphBuilder, x: Value, heads: number): Value {
  const order = Float32Array.from({ length: heads }, (_, head) => heads - head);
  const zeros = g.constant(`zeros[${heads}]`, new Float32Array(heads));
  const nothing = g.mulWeight(g.slice(x, 0, heads, "attn_route_any"), zeros, "attn_route_zero"); // [tokens, heads]
  const logits = g.addWeight(nothing, g.constant(`order[${heads}]`, order), "attn_route_order"); // [tokens, heads]
  const routing = { used: heads, gating: "softmax_chosen", normalise: false, scale: 1 } as const;
  return g.route(logits, routing, "attn_route");
}

/** The weights that mlaWithoutRope() reads. */
export function mlaWeights(
  embed: number,
  { layer, heads, rank, sharedDim, keyDim, vDim }: Omit<MlaShape, "normEps">,
): WeightSpec[] {
  const named = (name: string, ...shape: number[]) => ({
    name: `blk.${layer}.${name}.weight`,
    shape,
  });
  return [
    ...linearWeights(layer, "attn_q", [heads * keyDim, embed]),
    ...linearWeights(layer, "attn_kv_a_mqa", [rank + sharedDim, embed]),
    named("attn_kv_a_norm", rank),
    named("attn_k_b", heads, rank, keyDim - sharedDim),
    named("attn_v_b", heads, vDim, rank),
    ...linearWeights(layer, "attn_output", [embed, heads * vDim]),
  ];
}
