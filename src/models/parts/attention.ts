// Attention over the KV cache, without the norm before it and the residual after it: an architecture's forward() writes
// those itself. What a file does not have (biases, norms of heads) is not computed.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Rope, Value } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";

export interface AttentionShape {
  readonly layer: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly rope: Rope;
  /** Epsilon of the norms of q and k heads, where the file has them. */
  readonly normEps: number;
}

/** output(attention(q(x), k(x), v(x))): [tokens, embed] -> [tokens, embed]. */
export function attention(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  shape: AttentionShape,
): Value {
  const { layer, heads, kvHeads, headDim, rope, normEps } = shape;
  const scale = 1 / Math.sqrt(headDim);
  const project = (input: Value, name: string) =>
    g.matmul(
      input,
      w.get(`blk.${layer}.${name}.weight`),
      name,
      w.maybe(`blk.${layer}.${name}.bias`),
    );
  const normed = (value: Value, name: string) => {
    const weight = w.maybe(`blk.${layer}.${name}.weight`);
    return weight ? g.rmsNorm(value, weight, normEps, name) : value;
  };
  const factors = w.maybe("rope_freqs.weight");
  const kvCols = kvHeads * headDim;
  const state = g.state({ kind: "kv", layer, kCols: kvCols, vCols: kvCols });

  const q = normed(project(x, "attn_q"), "attn_q_norm"); // [tokens, heads * headDim]
  const k = normed(project(x, "attn_k"), "attn_k_norm"); // [tokens, kvHeads * headDim]
  const v = project(x, "attn_v"); // [tokens, kvHeads * headDim]
  const qRoped = g.rope(q, headDim, rope, "attn_q_rope", factors); // [tokens, heads * headDim]
  const kRoped = g.rope(k, headDim, rope, "attn_k_rope", factors); // [tokens, kvHeads * headDim]
  g.kvWrite(kRoped, v, state);
  const attended = g.attention(qRoped, { state, heads, kvHeads, headDim, scale }, "attn"); // [tokens, heads * headDim]
  return project(attended, "attn_output"); // [tokens, embed]
}

/** Which optional weights of attention a family has. */
export interface AttentionExtras {
  readonly qkvBias: "required" | "optional" | "none";
  /** Norms of q and k heads. */
  readonly headNorms: boolean;
}

/** The weights that attention() reads. */
export function attentionWeights(
  {
    embed,
    heads,
    kvHeads,
    headDim,
  }: { embed: number; heads: number; kvHeads: number; headDim: number },
  layer: number,
  { qkvBias, headNorms }: AttentionExtras,
): WeightSpec[] {
  const [qCols, kvCols] = [heads * headDim, kvHeads * headDim];
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  const bias = (name: string, size: number): WeightSpec[] =>
    qkvBias === "none" ? [] : [{ ...named(name, size), optional: qkvBias === "optional" }];
  return [
    named("attn_q.weight", qCols, embed),
    named("attn_k.weight", kvCols, embed),
    named("attn_v.weight", kvCols, embed),
    ...bias("attn_q.bias", qCols),
    ...bias("attn_k.bias", kvCols),
    ...bias("attn_v.bias", kvCols),
    named("attn_output.weight", embed, qCols),
    { ...named("attn_output.bias", embed), optional: true },
    ...(headNorms
      ? [named("attn_q_norm.weight", headDim), named("attn_k_norm.weight", headDim)]
      : []),
  ];
}
