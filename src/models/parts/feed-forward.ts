// Feed-forward networks, without the norm before them and the residual after them.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Activation, GateActivation, Value } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import { linear, linearRows, linearWeights, type Presence } from "./linear.ts";

/** down(silu(gate(x)) * up(x)): [tokens, embed] -> [tokens, embed]. */
export function swiglu(g: GraphBuilder, w: WeightLookup, x: Value, layer: number): Value {
  return gated(g, w, x, layer, "silu");
}

/** The same with GELU. */
export function geglu(g: GraphBuilder, w: WeightLookup, x: Value, layer: number): Value {
  return gated(g, w, x, layer, "gelu");
}

/** The same with any activation; `ofUp`: of the other factor as well. */
export function gated(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  activation: Activation,
  ofUp?: Activation,
): Value {
  const gate = linear(g, w, x, layer, "ffn_gate"); // [tokens, feedForward]
  const plain = linear(g, w, x, layer, "ffn_up"); // [tokens, feedForward]
  const up = ofUp ? g.activate(plain, ofUp, `ffn_up_${ofUp}`) : plain; // [tokens, feedForward]
  const inner = g.gate(gate, up, activation, `ffn_${activation}`); // [tokens, feedForward]
  return linear(g, w, inner, layer, "ffn_down"); // [tokens, embed]
}

/** swiglu() with silu(gate) and up kept within `limit`, if there is one. */
export function limitedSwiglu(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  limit: number | undefined,
): Value {
  if (limit === undefined) return swiglu(g, w, x, layer);
  const gate = linear(g, w, x, layer, "ffn_gate"); // [tokens, feedForward]
  const up = linear(g, w, x, layer, "ffn_up"); // [tokens, feedForward]
  const inner = gateWithin(g, gate, up, "silu", "dense", limit); // [tokens, feedForward]
  return linear(g, w, inner, layer, "ffn_down"); // [tokens, embed]
}

/** activation(gate) * up, both within -limit and limit where there is one: [tokens, n] -> [tokens, n]. */
export function gateWithin(
  g: GraphBuilder,
  gate: Value,
  up: Value,
  activation: GateActivation,
  suffix: string,
  limit: number | undefined,
): Value {
  const name = `ffn_${activation}_${suffix}`;
  if (limit === undefined || activation === "swiglu_oai") return g.gate(gate, up, activation, name);
  const opened = g.activate(gate, activation, `${name}_gate`); // [tokens, n]
  const bounded = g.clamp(opened, limit, `${name}_clamped`); // [tokens, n]
  return g.mul(bounded, g.clamp(up, limit, `ffn_up_${suffix}_clamped`), name); // [tokens, n]
}

/** swiglu() with gate and up in one tensor, ffn_up: the gate is its first half. `suffix`: of the tensors' names. */
export function fusedSwiglu(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  feedForward: number,
  suffix = "",
): Value {
  return fusedGated(g, w, x, layer, feedForward, "silu", suffix);
}

/** The same with another activation. */
export function fusedGated(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  feedForward: number,
  activation: Activation,
  suffix = "",
): Value {
  const fused = `ffn_up${suffix}`;
  const half = (name: string, from: number) =>
    linearRows(g, w, x, { layer, fused, name, from, count: feedForward });
  const gate = half(`ffn_gate${suffix}`, 0); // [tokens, feedForward]
  const up = half(fused, feedForward); // [tokens, feedForward]
  const inner = g.gate(gate, up, activation, `ffn_${activation}${suffix}`); // [tokens, feedForward]
  return linear(g, w, inner, layer, `ffn_down${suffix}`); // [tokens, embed]
}

/** down(activation(up(x))): [tokens, embed] -> [tokens, embed]. */
export function mlp(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  activation: Activation,
): Value {
  const up = linear(g, w, x, layer, "ffn_up"); // [tokens, feedForward]
  const inner = g.activate(up, activation, `ffn_${activation}`); // [tokens, feedForward]
  return linear(g, w, inner, layer, "ffn_down"); // [tokens, embed]
}

/** The weights that swiglu() and geglu() read. */
export function gatedWeights(
  embed: number,
  feedForward: number,
  layer: number,
  bias: Presence = "none",
): WeightSpec[] {
  return [
    ...linearWeights(layer, "ffn_gate", [feedForward, embed], bias),
    ...linearWeights(layer, "ffn_up", [feedForward, embed], bias),
    ...linearWeights(layer, "ffn_down", [embed, feedForward], bias),
  ];
}

/** The weights that fusedSwiglu() reads. */
export function fusedGatedWeights(
  embed: number,
  feedForward: number,
  layer: number,
  suffix = "",
): WeightSpec[] {
  return [
    ...linearWeights(layer, `ffn_up${suffix}`, [2 * feedForward, embed]),
    ...linearWeights(layer, `ffn_down${suffix}`, [embed, feedForward]),
  ];
}

/** The weights that mlp() reads. */
export function mlpWeights(
  embed: number,
  feedForward: number,
  layer: number,
  bias: Presence = "none",
): WeightSpec[] {
  return [
    ...linearWeights(layer, "ffn_up", [feedForward, embed], bias),
    ...linearWeights(layer, "ffn_down", [embed, feedForward], bias),
  ];
}
