// Kimi delta attention (KDA): linear attention by the delta rule with a decay for each channel of the keys, without the norm before it
// and the residual after it. Files have the matrices of decays and gates in two factors, or in one.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value } from "../../graph/graph.ts";
import { timesOf } from "../../graph/weight-source.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import { unit } from "./delta-net.ts";
import { linear, linearWeights } from "./linear.ts";
import { convolved } from "./mamba.ts";

export interface KdaShape {
  readonly heads: number;
  /** Columns of a head. */
  readonly headDim: number;
  /** Inputs of the convolutions. */
  readonly taps: number;
  readonly normEps: number;
  /** ssm_f_a and ssm_f_b, or only the first. */
  readonly decayFactors: 1 | 2;
  /** The matrices of the gate: ssm_g, ssm_g_a, or ssm_g_a and ssm_g_b. */
  readonly gate: readonly string[];
  /**
   * Logarithms of decays are bound * sigmoid(rate * |a|), where `isNegated` tells that the file has -|a|; without it, they are
   * a * softplus(rate).
   */
  readonly bound: { readonly least: number; readonly isNegated: boolean } | undefined;
}

/** output(norm(delta_net(q, k, v)) * sigmoid(gate)): [tokens, embed] -> [tokens, embed]. */
export function kda(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  shape: KdaShape,
): Value {
  const { heads, headDim: size, normEps, bound } = shape;
  const weight = (name: string) => w.get(`blk.${layer}.${name}`);
  const mixed = (name: string) =>
    convolved(g, w, linear(g, w, x, layer, `attn_${name}`), layer, `ssm_conv1d_${name}`);
  const query = unit(g, mixed("q"), size, normEps, "delta_q_unit"); // [tokens, heads * size]
  const q = g.scale(query, 1 / Math.sqrt(size), "delta_q_scaled"); // [tokens, heads * size]
  const k = unit(g, mixed("k"), size, normEps, "delta_k_unit"); // [tokens, heads * size]
  const v = mixed("v"); // [tokens, heads * size]
  const rate = rates(g, w, x, layer, shape); // [tokens, heads * size]
  const dt = bound
    ? g.activate(rate, "sigmoid", "ssm_f_sigmoid")
    : g.activate(rate, "softplus", "ssm_f_soft"); // [tokens, heads * size]
  const a = bound
    ? g.constant(`bound[${heads}]`, new Float32Array(heads).fill(bound.least))
    : weight("ssm_a"); // [heads]
  const beta = g.activate(linear(g, w, x, layer, "ssm_beta"), "sigmoid", "ssm_beta_sigmoid"); // [tokens, heads]
  const state = g.state({ kind: "recurrent", layer, floats: heads * size * size });
  const operands = { q, k, v, dt, beta, a, keyHeads: heads, tiled: false, state };
  const y = g.deltaNet(operands, "delta_net"); // [tokens, heads * size]
  const normed = g.rmsNorm(y, weight("ssm_norm.weight"), normEps, "ssm_norm"); // [tokens, heads * size]
  const gate = shape.gate.reduce((input, name) => linear(g, w, input, layer, name), x); // [tokens, heads * size]
  return linear(g, w, g.gate(gate, normed, "sigmoid", "delta_gated"), layer, "attn_output"); // [tokens, embed]
}

/** The input of the decays' activation: [tokens, embed] -> [tokens, heads * size]. */
function rates(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  { headDim, decayFactors, bound }: KdaShape,
): Value {
  const weight = (name: string) => w.get(`blk.${layer}.${name}`);
  const bias = weight("ssm_dt.bias"); // [heads * size]
  const rate =
    decayFactors === 1
      ? g.matmul(x, weight("ssm_f_a.weight"), "ssm_f_a", bias)
      : g.matmul(linear(g, w, x, layer, "ssm_f_a"), weight("ssm_f_b.weight"), "ssm_f_b", bias); // [tokens, heads * size]
  if (!bound) return rate;
  const scaled = g.mulWeight(rate, timesOf(weight("ssm_a"), headDim), "ssm_f_scaled"); // [tokens, heads * size]
  return bound.isNegated ? g.scale(scaled, -1, "ssm_f_negated") : scaled;
}

/** The weights that kda() reads. */
export function kdaWeights(
  embed: number,
  layer: number,
  { heads, headDim: size, taps, decayFactors, gate }: KdaShape,
): WeightSpec[] {
  const cols = heads * size;
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  const factors = (names: readonly string[]) =>
    names.flatMap((name, i) => {
      const outputs = i === names.length - 1 ? cols : size;
      return linearWeights(layer, name, [outputs, i === 0 ? embed : size]);
    });
  return [
    ...["q", "k", "v"].flatMap((name) => [
      ...linearWeights(layer, `attn_${name}`, [cols, embed]),
      named(`ssm_conv1d_${name}.weight`, cols, taps),
    ]),
    ...factors(["ssm_f_a", "ssm_f_b"].slice(0, decayFactors)),
    ...factors(gate),
    ...linearWeights(layer, "ssm_beta", [heads, embed]),
    named("ssm_a", heads),
    named("ssm_dt.bias", cols),
    named("ssm_norm.weight", size),
    ...linearWeights(layer, "attn_output", [embed, cols]),
  ];
}
