// Attention over the KV cache, without the norm before it and the residual after it: an architecture's forward() writes those
// itself. Parts that a file does not have (biases, norms of heads) are not computed.

import { ModelError } from "../../base/errors.ts";
import type { GraphBuilder } from "../../graph/builder.ts";
import type { OpTable, Rope, Value, Weight } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import { linear, linearRows, linearWeights, type Presence, present } from "./linear.ts";
import { ones } from "./norms.ts";
import { type Contexts, ropeFactors } from "./rope-factors.ts";

export interface AttentionShape extends Contexts {
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
  /** The divisors of rope's frequencies. Default: rope_freqs.weight or the factors for this context, if the file has them. */
  readonly ropeFactors?: Weight | "none" | undefined;
  /** Epsilon of the norms of q and k, where the file has them. */
  readonly normEps: number;
  /** Which norms q and k have, where the file has them. Default: "rms". */
  readonly headNorm?: "rms" | "layer";
  /** The norms of q and k come after the rotation. Default: false. */
  readonly normsAfterRope?: boolean;
  /** Values are normed, without a weight. Default: false. */
  readonly valueNorm?: boolean;
  /** The KV cache that the architecture declared, where it does. Default: this layer's own. */
  readonly state?: number | undefined;
  /** An earlier layer writes that cache: this one has only queries. Default: false. */
  readonly sharesKv?: boolean;
  /** q, k and v are kept between -clamp and clamp. */
  readonly clamp?: number | undefined;
  /** Queries grow with the length of the text. */
  readonly temperature?: Temperature | undefined;
  /** Tokens that a token attends to, itself included. Default: all. */
  readonly window?: number | undefined;
  /** Factor on the scores. Default: 1 / sqrt(headDim). */
  readonly scale?: number | undefined;
  /** Scores s become softcap * tanh(s / softcap). */
  readonly softcap?: number | undefined;
  /** false: tokens attend to later ones, too. Default: true. */
  readonly causal?: boolean;
  /** [heads]: one more score in each head's softmax, without a value. */
  readonly sinks?: Weight | undefined;
  /** ALiBi: the first head's slope is 2^(-alibi / heads) for a power of two of heads. */
  readonly alibi?: number | undefined;
  /** The addition to a score by the distance of the two positions: the op's `bias` and `buckets`. */
  readonly bias?: Weight | undefined;
  readonly buckets?: Weight | undefined;
}

export type Temperature = Omit<OpTable["temperature"], "x">;

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
    if (!weight) return value;
    if (shape.headNorm !== "layer") return g.rmsNorm(value, weight, normEps, name);
    const bias = w.maybe(`blk.${layer}.${name}.bias`);
    return headLayerNorm(g, value, headDim, { weight, bias, eps: normEps, name });
  };
  const { ropeFactors: own = ropeFactors(w, shape) } = shape;
  const factors = own === "none" ? undefined : own;
  const roped = (value: Value, name: string) =>
    rope ? g.rope(value, headDim, rope, name, factors) : value;
  const sizes = { kCols: kvHeads * headDim, vCols: kvHeads * vHeadDim };
  const state = shape.state ?? g.state({ kind: "kv", layer, ...sizes, ...(window && { window }) });
  const alibi = shape.alibi === undefined ? undefined : alibiSlopes(g, heads, shape.alibi); // [heads]
  const { bias, buckets } = shape;
  const scores = { scale, softcap, causal, sinks, alibi, bias, buckets };
  const options = { state, heads, kvHeads, headDim, vHeadDim, ...scores };

  const projected: { q: Value; k?: Value; v?: Value } = shape.sharesKv
    ? { q: projectOne(g, w, x, shape, "attn_q", 0, heads * headDim) }
    : projectQkv(g, w, x, shape);
  const isLate = shape.normsAfterRope === true;
  const early = (value: Value, name: string) => (isLate ? value : normed(value, name));
  const late = (value: Value, name: string) => (isLate ? normed(value, name) : value);
  const { v } = projected;
  const q = early(projected.q, "attn_q_norm"); // [tokens, heads * headDim]
  const k = projected.k && early(projected.k, "attn_k_norm"); // [tokens, kvHeads * headDim]
  const plain = v && shape.valueNorm ? g.rmsNorm(v, ones(g, vHeadDim), normEps, "attn_v_norm") : v; // [tokens, kvHeads * vHeadDim]
  // Both ropes, the write and attention follow each other: a GPU computes them at once (backends/webgpu/fuse.ts).
  const qRoped = roped(q, "attn_q_rope"); // [tokens, heads * headDim]
  const kRoped = k && roped(k, "attn_k_rope"); // [tokens, kvHeads * headDim]
  const qNormed = late(qRoped, "attn_q_norm"); // [tokens, heads * headDim]
  const qTurned = shape.temperature
    ? g.temperature(qNormed, shape.temperature, "attn_q_temperature")
    : qNormed; // [tokens, heads * headDim]
  if (kRoped && plain) g.kvWrite(late(kRoped, "attn_k_norm"), plain, state);
  return g.attention(qTurned, options, "attn"); // [tokens, heads * vHeadDim]
}

/**
 * q: [tokens, heads * headDim], k: [tokens, kvHeads * headDim], v: [tokens, kvHeads * vHeadDim]. Without attn_v, values are the
 * keys.
 */
export function projectQkv(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  shape: AttentionShape,
): { q: Value; k: Value; v: Value } {
  const { layer, heads, kvHeads, headDim, vHeadDim = headDim, fusedQkv = false } = shape;
  const [qCols, kCols, vCols] = [heads * headDim, kvHeads * headDim, kvHeads * vHeadDim];
  const q = projectOne(g, w, x, shape, "attn_q", 0, qCols);
  const k = projectOne(g, w, x, shape, "attn_k", qCols, kCols);
  const hasValues = fusedQkv || w.maybe(`blk.${layer}.attn_v.weight`) !== undefined;
  return { q, k, v: hasValues ? projectOne(g, w, x, shape, "attn_v", qCols + kCols, vCols) : k };
}

/** One of q, k and v: `count` rows from `from` on, where they are one tensor. */
function projectOne(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  { layer, fusedQkv = false, clamp }: AttentionShape,
  name: string,
  from: number,
  count: number,
): Value {
  const out = fusedQkv
    ? linearRows(g, w, x, { layer, fused: "attn_qkv", name, from, count })
    : linear(g, w, x, layer, name);
  return clamp === undefined ? out : g.clamp(out, clamp, `${name}_clamped`);
}

/** LayerNorm of a row, or of each head with weights of its own: [heads, headDim]. */
function headLayerNorm(
  g: GraphBuilder,
  x: Value,
  headDim: number,
  {
    weight,
    bias,
    eps,
    name,
  }: { weight: Weight; bias: Weight | undefined; eps: number; name: string },
): Value {
  if (weight.shape.length === 1) return g.layerNorm(x, weight, bias, eps, name);
  const { dtype } = weight;
  if (dtype.blockElems > 1) {
    throw new ModelError(`model: ${weight.name} is ${dtype.name}, expected floats: it is a norm`);
  }
  const plain = g.layerNorm(x, ones(g, headDim), undefined, eps, `${name}_plain`); // [tokens, heads * headDim]
  return g.mulWeight(plain, { ...weight, shape: [x.cols] }, name); // [tokens, heads * headDim]
}

/** ALiBi's slopes: a geometric series over the heads; heads beyond a power of two lie between. */
function alibiSlopes(g: GraphBuilder, heads: number, most: number): Weight {
  const whole = 2 ** Math.floor(Math.log2(heads));
  const slopes = Float32Array.from({ length: heads }, (_, head) =>
    head < whole
      ? 2 ** ((-most / whole) * (head + 1))
      : 2 ** ((-most / 2 / whole) * (2 * (head - whole) + 1)),
  );
  return g.constant(`alibi[${heads}]`, slopes);
}

/** Which optional weights of attention a family has. */
export interface AttentionExtras {
  readonly qkvBias: Presence;
  /** Default: "optional". */
  readonly outputBias?: Presence;
  /** Norms of q and k: of each head, all with one weight (true) or each with its own, or of the whole row. */
  readonly headNorms: boolean | "own" | "rows";
  /** Whether files have these norms. Default: "required". */
  readonly headNormPresence?: Presence;
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
  { qkvBias, outputBias = "optional", headNorms, headNormPresence = "required" }: AttentionExtras,
): WeightSpec[] {
  const { embed, heads, kvHeads, headDim, vHeadDim = headDim, fusedQkv = false } = sizes;
  const [qCols, kCols, vCols] = [heads * headDim, kvHeads * headDim, kvHeads * vHeadDim];
  const norm = (name: string, cols: number) => {
    const shape =
      headNorms === "rows" ? [cols] : headNorms === "own" ? [cols / headDim, headDim] : [headDim];
    return present({ name: `blk.${layer}.${name}.weight`, shape }, headNormPresence);
  };
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
    ...(headNorms ? [...norm("attn_q_norm", qCols), ...norm("attn_k_norm", kCols)] : []),
  ];
}
