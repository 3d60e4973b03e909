// The layers of Mamba 1 and 2, without the norm before them and the residual after them: a matrix makes the input and its gate,
// a short convolution mixes neighbouring tokens, a selective scan goes over all of them.

import { ModelError } from "../../base/errors.ts";
import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value, Weight } from "../../graph/graph.ts";
import { rowsOf } from "../../graph/weight-source.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import type { SsmConfig } from "../recurrent-config.ts";
import { linear, linearRows, linearWeights, type Presence, present } from "./linear.ts";
import { ones } from "./norms.ts";

export interface MambaShape {
  readonly layer: number;
  readonly normEps: number;
  readonly ssm: SsmConfig;
}

/** out(silu(z) * scan(silu(conv(x)))): [tokens, embed] -> [tokens, embed]. */
export function mamba(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  { layer, normEps, ssm, plainNorms = false }: MambaShape & { plainNorms?: boolean },
): Value {
  const { inner, states, heads: rank } = ssm;
  const weight = (name: string) => w.get(`blk.${layer}.${name}`);
  const rows = (input: Value, fused: string, name: string, from: number, count: number) =>
    linearRows(g, w, input, { layer, fused, name, from, count });
  /** FalconMamba norms steps, keys and queries without weights, Jamba with weights. */
  const normed = (value: Value, name: string) => {
    const own = w.maybe(`blk.${layer}.${name}.weight`) ?? (plainNorms && ones(g, value.cols));
    return own ? g.rmsNorm(value, own, normEps, name) : value;
  };

  const input = rows(x, "ssm_in", "ssm_in_x", 0, inner); // [tokens, inner]
  const z = rows(x, "ssm_in", "ssm_in_z", inner, inner); // [tokens, inner]
  const u = convolved(g, w, input, layer); // [tokens, inner]
  const low = normed(rows(u, "ssm_x", "ssm_dt_low", 0, rank), "ssm_dt_norm"); // [tokens, rank]
  const b = normed(rows(u, "ssm_x", "ssm_b", rank, states), "ssm_b_norm"); // [tokens, states]
  const c = normed(rows(u, "ssm_x", "ssm_c", rank + states, states), "ssm_c_norm"); // [tokens, states]
  const dt = g.activate(linear(g, w, low, layer, "ssm_dt"), "softplus", "ssm_dt_soft"); // [tokens, inner]
  const state = g.state({ kind: "recurrent", layer, floats: inner * states });
  const [a, skip] = [weight("ssm_a"), weight("ssm_d")];
  const y = g.ssmScan({ x: u, dt, b, c, a, skip, states, state }, "ssm_scan"); // [tokens, inner]
  return linear(g, w, g.gate(z, y, "silu", "ssm_gated"), layer, "ssm_out"); // [tokens, embed]
}

/** The weights that mamba() reads. */
export function mambaWeights(
  embed: number,
  { inner, states, heads: rank, taps }: SsmConfig,
  layer: number,
  norms: Presence = "none",
): WeightSpec[] {
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  return [
    ...linearWeights(layer, "ssm_in", [2 * inner, embed]),
    named("ssm_conv1d.weight", inner, taps),
    named("ssm_conv1d.bias", inner),
    ...linearWeights(layer, "ssm_x", [rank + 2 * states, inner]),
    ...linearWeights(layer, "ssm_dt", [inner, rank], "required"),
    ...present(named("ssm_dt_norm.weight", rank), norms),
    ...present(named("ssm_b_norm.weight", states), norms),
    ...present(named("ssm_c_norm.weight", states), norms),
    named("ssm_a", inner, states),
    named("ssm_d", inner),
    ...linearWeights(layer, "ssm_out", [embed, inner]),
  ];
}

/** out(norm(silu(z) * scan(silu(conv(x, b, c))))): [tokens, embed] -> [tokens, embed]. */
export function mamba2(g: GraphBuilder, w: WeightLookup, x: Value, shape: MambaShape): Value {
  const { layer, normEps, ssm } = shape;
  const { inner, states, heads, groups } = ssm;
  const weight = (name: string) => w.get(`blk.${layer}.${name}`);
  const keys = groups * states;
  const mixed = inner + 2 * keys;
  const part = (name: string, from: number, count: number, bias?: Weight) =>
    g.matmul(x, rowsOf(weight("ssm_in.weight"), from, count), name, bias);

  const z = part("ssm_in_z", 0, inner); // [tokens, inner]
  const xbc = convolved(g, w, part("ssm_in_xbc", inner, mixed), layer); // [tokens, inner + 2 * groups * states]
  const steps = part("ssm_in_dt", inner + mixed, heads, weight("ssm_dt.bias")); // [tokens, heads]
  const dt = g.activate(steps, "softplus", "ssm_dt_soft"); // [tokens, heads]
  const u = g.slice(xbc, 0, inner, "ssm_x"); // [tokens, inner]
  const b = g.slice(xbc, inner, keys, "ssm_b"); // [tokens, groups * states]
  const c = g.slice(xbc, inner + keys, keys, "ssm_c"); // [tokens, groups * states]
  const state = g.state({ kind: "recurrent", layer, floats: inner * states });
  const [a, skip] = [weight("ssm_a"), weight("ssm_d")];
  const y = g.ssmScan({ x: u, dt, b, c, a, skip, states, state }, "ssm_scan"); // [tokens, inner]
  const gated = g.gate(z, y, "silu", "ssm_gated"); // [tokens, inner]
  const norm = w.maybe(`blk.${layer}.ssm_norm.weight`);
  const normed = norm ? groupNorm(g, gated, norm, normEps, "ssm_norm") : gated; // [tokens, inner]
  return linear(g, w, normed, layer, "ssm_out"); // [tokens, embed]
}

/** The weights that mamba2() reads. */
export function mamba2Weights(
  embed: number,
  { inner, states, heads, groups, taps }: SsmConfig,
  layer: number,
  norm: Presence,
): WeightSpec[] {
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  const mixed = inner + 2 * groups * states;
  return [
    ...linearWeights(layer, "ssm_in", [inner + mixed + heads, embed]),
    named("ssm_conv1d.weight", mixed, taps),
    { ...named("ssm_conv1d.bias", mixed), optional: true },
    named("ssm_dt.bias", heads),
    named("ssm_a", heads),
    named("ssm_d", heads),
    ...present(named("ssm_norm.weight", groups, inner / groups), norm),
    ...linearWeights(layer, "ssm_out", [embed, inner]),
  ];
}

/** silu of a short convolution (ssm_conv1d) over each column: [tokens, n] -> [tokens, n]. */
export function convolved(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  name = "ssm_conv1d",
): Value {
  const weight = w.get(`blk.${layer}.${name}.weight`);
  const floats = (weight.shape[1]! - 1) * x.cols;
  const state = g.state({ kind: "recurrent", layer, floats });
  const mixed = g.shortConv(x, weight, state, name, w.maybe(`blk.${layer}.${name}.bias`)); // [tokens, n]
  return g.activate(mixed, "silu", `${name}_silu`); // [tokens, n]
}

/** RMS norm of groups of columns that have weights of their own: weight [groups, size]. */
export function groupNorm(
  g: GraphBuilder,
  x: Value,
  weight: Weight,
  eps: number,
  name: string,
): Value {
  const size = weight.shape.at(-1)!;
  if (size === x.cols) return g.rmsNorm(x, flat(weight), eps, name);
  const plain = g.rmsNorm(x, ones(g, size), eps, `${name}_plain`); // [tokens, groups * size]
  return g.mulWeight(plain, flat(weight), name); // [tokens, groups * size]
}

/** A weight of several dimensions as one vector. */
export function flat(weight: Weight): Weight {
  const { name, dtype, shape } = weight;
  if (dtype.blockElems > 1) {
    throw new ModelError(
      `model: ${name} is ${dtype.name}, expected floats: it is read as a vector`,
    );
  }
  return { ...weight, shape: [shape.reduce((product, dim) => product * dim, 1)] };
}
