// Attention over the KV cache, without the norm before it and the residual after it: an architecture's forward() writes
// those itself. What a file does not have (biases, norms of heads) is not computed.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Rope, Value, Weight } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import { linear, linearRows, linearWeights, type Presence, present } from "./linear.ts";

export interface AttentionShape {
  readonly layer: number;
  readonly heads: number;
  readonly kvHeads: number;
  /** Values of a head of queries or keys. */
  readonly headDim: number;
  /** Values of a head of values. Default: headDim. */
  readonly vHeadDim?: number;
  /** q, k and v are one tensor of the file. Default: false. */
  readonly fusedQkv?: boolean;
  /** undefined: this layer has no rotary positions. */
  readonly rope: Rope | undefined;
  /** What divides the frequencies of rope. Default: rope_freqs.weight, where the file has it. */
  readonly ropeFactors?: Weight | undefined;
  /** Epsilon of the norms of q and k, where the file has them. */
  readonly normEps: number;
  /** The norms of q and k come after the rotation. Default: false. */
  readonly normsAfterRope?: boolean;
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
  const attended = attend(g, w, x, shape); // [tokens, heads * vHeadDim]
  return linear(g, w, attended, shape.layer, "attn_output"); // [tokens, embed]
}

/** The same without the output matrix: [tokens, embed] -> [tokens, heads * vHeadDim]. */
export function attend(g: GraphBuilder, w: WeightLookup, x: Value, shape: AttentionShape): Value {
  const { layer, heads, kvHeads, headDim, vHeadDim = headDim, rope, normEps, window } = shape;
  const { scale = 1 / Math.sqrt(headDim), softcap, causal = true, sinks } = shape;
  const normed = (value: Value, name: string) => {
    const weight = w.maybe(`blk.${layer}.${name}.weight`);
    return weight ? g.rmsNorm(value, weight, normEps, name) : value;
  };
  const factors = shape.ropeFactors ?? w.maybe("rope_freqs.weight");
  const roped = (value: Value, name: string) =>
    rope ? g.rope(value, headDim, rope, name, factors) : value;
  const turned = (value: Value, name: string) =>
    shape.normsAfterRope
      ? normed(roped(value, `${name}_rope`), `${name}_norm`)
      : roped(normed(value, `${name}_norm`), `${name}_rope`);
  const sizes = { kCols: kvHeads * headDim, vCols: kvHeads * vHeadDim };
  const state = g.state({ kind: "kv", layer, ...sizes, ...(window && { window }) });
  const options = { state, heads, kvHeads, headDim, vHeadDim, scale, softcap, causal, sinks };

  const { q, k, v } = projectQkv(g, w, x, shape);
  const qTurned = turned(q, "attn_q"); // [tokens, heads * headDim]
  const kTurned = turned(k, "attn_k"); // [tokens, kvHeads * headDim]
  g.kvWrite(kTurned, v, state);
  return g.attention(qTurned, options, "attn"); // [tokens, heads * vHeadDim]
}

/** q: [tokens, heads * headDim], k: [tokens, kvHeads * headDim], v: [tokens, kvHeads * vHeadDim]. */
export function projectQkv(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  { layer, heads, kvHeads, headDim, vHeadDim = headDim, fusedQkv = false }: AttentionShape,
): { q: Value; k: Value; v: Value } {
  const [qCols, kCols, vCols] = [heads * headDim, kvHeads * headDim, kvHeads * vHeadDim];
  const project = (name: string, from: number, count: number) =>
    fusedQkv
      ? linearRows(g, w, x, { layer, fused: "attn_qkv", name, from, count })
      : linear(g, w, x, layer, name);
  return {
    q: project("attn_q", 0, qCols),
    k: project("attn_k", qCols, kCols),
    v: project("attn_v", qCols + kCols, vCols),
  };
}

/** Which optional weights of attention a family has. */
export interface AttentionExtras {
  readonly qkvBias: Presence;
  /** Default: "optional". */
  readonly outputBias?: Presence;
  /** Norms of q and k: of each head, all with one weight, or of the whole row. */
  readonly headNorms: boolean | "rows";
}

interface AttentionSizes {
  readonly embed: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vHeadDim?: number;
  readonly fusedQkv?: boolean;
}

/** The weights that attention() reads. */
export function attentionWeights(
  sizes: AttentionSizes,
  layer: number,
  { qkvBias, outputBias = "optional", headNorms }: AttentionExtras,
): WeightSpec[] {
  const { embed, heads, kvHeads, headDim, vHeadDim = headDim, fusedQkv = false } = sizes;
  const [qCols, kCols, vCols] = [heads * headDim, kvHeads * headDim, kvHeads * vHeadDim];
  const norm = (name: string, cols: number) => ({
    name: `blk.${layer}.${name}.weight`,
    shape: [headNorms === "rows" ? cols : headDim],
  });
  return [
    ...(fusedQkv
      ? linearWeights(layer, "attn_qkv", [qCols + kCols + vCols, embed], qkvBias)
      : [
          ...linearWeights(layer, "attn_q", [qCols, embed], qkvBias),
          ...linearWeights(layer, "attn_k", [kCols, embed], qkvBias),
          ...linearWeights(layer, "attn_v", [vCols, embed], qkvBias),
        ]),
    { name: `blk.${layer}.attn_output.weight`, shape: [embed, heads * vHeadDim] },
    ...present({ name: `blk.${layer}.attn_output.bias`, shape: [embed] }, outputBias),
    ...(headNorms ? [norm("attn_q_norm", qCols), norm("attn_k_norm", kCols)] : []),
  ];
}
