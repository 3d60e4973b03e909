// Attention over the KV cache, without the norm before it and the residual after it: an architecture's forward() writes
// those itself. What a file does not have (biases, norms of heads) is not computed.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Rope, Value, Weight } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";

export interface AttentionShape {
  readonly layer: number;
  readonly heads: number;
  readonly kvHeads: number;
  /** Values of a head of queries or keys. */
  readonly headDim: number;
  /** Values of a head of values. Default: headDim. */
  readonly vHeadDim?: number;
  /** undefined: this layer has no rotary positions. */
  readonly rope: Rope | undefined;
  /** Epsilon of the norms of q and k, where the file has them. */
  readonly normEps: number;
  /** Tokens that a token attends to, itself included. Default: all. */
  readonly window?: number | undefined;
  /** Factor on the scores. Default: 1 / sqrt(headDim). */
  readonly scale?: number | undefined;
  /** Scores s become softcap * tanh(s / softcap). */
  readonly softcap?: number | undefined;
  /** false: tokens attend to those after them, too. Default: true. */
  readonly causal?: boolean;
  /** [heads]: one more score in each head's softmax, without a value. */
  readonly sinks?: Weight | undefined;
}

/** output(attention(q(x), k(x), v(x))): [tokens, embed] -> [tokens, embed]. */
export function attention(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  shape: AttentionShape,
): Value {
  const { layer, heads, kvHeads, headDim, vHeadDim = headDim, rope, normEps, window } = shape;
  const { scale = 1 / Math.sqrt(headDim), softcap, causal = true, sinks } = shape;
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
  const roped = (value: Value, name: string) =>
    rope ? g.rope(value, headDim, rope, name, factors) : value;
  const sizes = { kCols: kvHeads * headDim, vCols: kvHeads * vHeadDim };
  const state = g.state({ kind: "kv", layer, ...sizes, ...(window && { window }) });
  const options = { state, heads, kvHeads, headDim, vHeadDim, scale, softcap, causal, sinks };

  const q = normed(project(x, "attn_q"), "attn_q_norm"); // [tokens, heads * headDim]
  const k = normed(project(x, "attn_k"), "attn_k_norm"); // [tokens, kvHeads * headDim]
  const v = project(x, "attn_v"); // [tokens, kvHeads * vHeadDim]
  const qRoped = roped(q, "attn_q_rope"); // [tokens, heads * headDim]
  const kRoped = roped(k, "attn_k_rope"); // [tokens, kvHeads * headDim]
  g.kvWrite(kRoped, v, state);
  const attended = g.attention(qRoped, options, "attn"); // [tokens, heads * vHeadDim]
  return project(attended, "attn_output"); // [tokens, embed]
}

/** Which optional weights of attention a family has. */
export interface AttentionExtras {
  readonly qkvBias: "required" | "optional" | "none";
  /** Norms of each head of q and k. */
  readonly headNorms: boolean;
}

/** The weights that attention() reads. */
export function attentionWeights(
  {
    embed,
    heads,
    kvHeads,
    headDim,
    vHeadDim = headDim,
  }: { embed: number; heads: number; kvHeads: number; headDim: number; vHeadDim?: number },
  layer: number,
  { qkvBias, headNorms }: AttentionExtras,
): WeightSpec[] {
  const [qCols, kCols, vCols] = [heads * headDim, kvHeads * headDim, kvHeads * vHeadDim];
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  const bias = (name: string, size: number): WeightSpec[] =>
    qkvBias === "none" ? [] : [{ ...named(name, size), optional: qkvBias === "optional" }];
  return [
    named("attn_q.weight", qCols, embed),
    named("attn_k.weight", kCols, embed),
    named("attn_v.weight", vCols, embed),
    ...bias("attn_q.bias", qCols),
    ...bias("attn_k.bias", kCols),
    ...bias("attn_v.bias", vCols),
    named("attn_output.weight", embed, heads * vHeadDim),
    { ...named("attn_output.bias", embed), optional: true },
    ...(headNorms
      ? [named("attn_q_norm.weight", headDim), named("attn_k_norm.weight", headDim)]
      : []),
  ];
}
