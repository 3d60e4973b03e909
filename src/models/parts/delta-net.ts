// Linear attention by the gated delta rule (Gated DeltaNet), without the norm before it and the residual after it.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value, Weight } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import type { SsmConfig } from "../recurrent-config.ts";
import { linear, linearWeights } from "./linear.ts";
import { convolved } from "./mamba.ts";

export interface DeltaNetShape {
  readonly layer: number;
  readonly normEps: number;
  /** `states`: columns of a head of keys; `groups`: heads of keys. */
  readonly ssm: SsmConfig;
  /** beta and the time steps are one tensor, ssm_ba, which has both of each key head together; otherwise ssm_beta and ssm_alpha. */
  readonly fusedSteps: boolean;
  /** The key head of head h is h % groups; otherwise neighbouring heads share one. */
  readonly tiled: boolean;
}

/** out(norm(delta_net(silu(conv(q, k, v)))) * silu(z)): [tokens, embed] -> [tokens, embed]. */
export function deltaNet(g: GraphBuilder, w: WeightLookup, x: Value, shape: DeltaNetShape): Value {
  const { layer, normEps, ssm, tiled } = shape;
  const { inner, states, heads, groups } = ssm;
  const weight = (name: string) => w.get(`blk.${layer}.${name}`);
  const keys = groups * states;
  const { qkv, z } = projected(g, w, x, shape); // [tokens, 2 * keys + inner], [tokens, inner]
  const mixed = convolved(g, w, qkv, layer); // [tokens, 2 * keys + inner]
  const query = unit(g, g.slice(mixed, 0, keys, "delta_q"), states, normEps, "delta_q_unit"); // [tokens, keys]
  const q = g.scale(query, 1 / Math.sqrt(states), "delta_q_scaled"); // [tokens, keys]
  const k = unit(g, g.slice(mixed, keys, keys, "delta_k"), states, normEps, "delta_k_unit"); // [tokens, keys]
  const v = g.slice(mixed, 2 * keys, inner, "delta_v"); // [tokens, inner]
  const { beta, dt } = steps(g, w, x, shape); // [tokens, heads] each
  const floats = heads * states * (inner / heads);
  const state = g.state({ kind: "recurrent", layer, floats });
  const operands = { q, k, v, dt, beta, a: weight("ssm_a"), keyHeads: groups, tiled, state };
  const y = g.deltaNet(operands, "delta_net"); // [tokens, inner]
  const normed = g.rmsNorm(y, weight("ssm_norm.weight"), normEps, "ssm_norm"); // [tokens, inner]
  return linear(g, w, g.gate(z, normed, "silu", "delta_gated"), layer, "ssm_out"); // [tokens, embed]
}

/** The input of the convolution, and the gate. Older files have both in one tensor, ssm_in, with q, k, v and z of each key head together. */
function projected(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  { layer, ssm: { inner, states, groups } }: DeltaNetShape,
): { qkv: Value; z: Value } {
  if (!w.maybe(`blk.${layer}.ssm_in.weight`)) {
    return { qkv: linear(g, w, x, layer, "attn_qkv"), z: linear(g, w, x, layer, "attn_gate") };
  }
  const values = inner / groups; // of a key head
  const all = linear(g, w, x, layer, "ssm_in"); // [tokens, groups * 2 * (states + values)]
  const part = (from: number, count: number, name: string) =>
    g.slice(all, from, count, `ssm_in_${name}`, groups); // [tokens, groups * count]
  const qk = g.concat(part(0, states, "q"), part(states, states, "k"), "ssm_in_qk"); // [tokens, 2 * keys]
  const qkv = g.concat(qk, part(2 * states, values, "v"), "ssm_in_qkv"); // [tokens, 2 * keys + inner]
  return { qkv, z: part(2 * states + values, values, "z") };
}

/** The part that a token replaces, and the decay of the state: [tokens, heads] each. */
function steps(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  { layer, ssm, fusedSteps }: DeltaNetShape,
): { beta: Value; dt: Value } {
  const { heads, groups } = ssm;
  const bias = w.get(`blk.${layer}.ssm_dt.bias`);
  if (!fusedSteps) {
    const alpha = g.matmul(x, w.get(`blk.${layer}.ssm_alpha.weight`), "ssm_alpha", bias);
    return activated(g, linear(g, w, x, layer, "ssm_beta"), alpha);
  }
  const both = linear(g, w, x, layer, "ssm_ba"); // [tokens, groups * 2 * heads / groups]
  const own = heads / groups;
  const alpha = g.slice(both, own, own, "ssm_alpha", groups); // [tokens, heads]
  const biased = g.addWeight(alpha, bias, "ssm_alpha_biased"); // [tokens, heads]
  return activated(g, g.slice(both, 0, own, "ssm_beta", groups), biased);
}

function activated(g: GraphBuilder, beta: Value, alpha: Value): { beta: Value; dt: Value } {
  return {
    beta: g.activate(beta, "sigmoid", "ssm_beta_sigmoid"),
    dt: g.activate(alpha, "softplus", "ssm_alpha_soft"),
  };
}

/** Heads of `size` columns, each divided by its length. */
export function unit(g: GraphBuilder, x: Value, size: number, eps: number, name: string): Value {
  const lengths: Weight = g.constant(`unit[${size}]`, new Float32Array(size).fill(size ** -0.5));
  // ggml divides by the length or by eps, whichever is larger; a norm adds the square of eps to that of the length.
  return g.rmsNorm(x, lengths, (eps * eps) / size, name);
}

/** The weights that deltaNet() reads. */
export function deltaNetWeights(
  embed: number,
  { inner, states, heads, groups, taps }: SsmConfig,
  layer: number,
  fusedSteps: boolean,
): WeightSpec[] {
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  const mixed = 2 * groups * states + inner;
  const older = named("ssm_in.weight", mixed + inner, embed);
  const newer = [
    ...linearWeights(layer, "attn_qkv", [mixed, embed]),
    ...linearWeights(layer, "attn_gate", [inner, embed]),
  ];
  return [
    ...(fusedSteps ? [{ ...older, optional: true }] : []),
    ...newer.map((spec) => (fusedSteps ? { ...spec, unless: older.name } : spec)),
    named("ssm_conv1d.weight", mixed, taps),
    named("ssm_dt.bias", heads),
    named("ssm_a", heads),
    ...(fusedSteps
      ? linearWeights(layer, "ssm_ba", [2 * heads, embed])
      : [
          ...linearWeights(layer, "ssm_beta", [heads, embed]),
          ...linearWeights(layer, "ssm_alpha", [heads, embed]),
        ]),
    named("ssm_norm.weight", inner / heads),
    ...linearWeights(layer, "ssm_out", [embed, inner]),
  ];
}
