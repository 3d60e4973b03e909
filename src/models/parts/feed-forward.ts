// Feed-forward networks, without the norm before them and the residual after them.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Activation, Value } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";

/** down(silu(gate(x)) * up(x)): [tokens, embed] -> [tokens, embed]. */
export function swiglu(g: GraphBuilder, w: WeightLookup, x: Value, layer: number): Value {
  return gated(g, w, x, layer, "silu");
}

/** The same with GELU. */
export function geglu(g: GraphBuilder, w: WeightLookup, x: Value, layer: number): Value {
  return gated(g, w, x, layer, "gelu");
}

function gated(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  activation: Activation,
): Value {
  const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
  const gate = g.matmul(x, weight("ffn_gate"), "ffn_gate"); // [tokens, feedForward]
  const up = g.matmul(x, weight("ffn_up"), "ffn_up"); // [tokens, feedForward]
  const inner = g.gate(gate, up, activation, `ffn_${activation}`); // [tokens, feedForward]
  return g.matmul(inner, weight("ffn_down"), "ffn_down"); // [tokens, embed]
}

/** The weights that swiglu() and geglu() read. */
export function gatedWeights(embed: number, feedForward: number, layer: number): WeightSpec[] {
  return [
    { name: `blk.${layer}.ffn_gate.weight`, shape: [feedForward, embed] },
    { name: `blk.${layer}.ffn_up.weight`, shape: [feedForward, embed] },
    { name: `blk.${layer}.ffn_down.weight`, shape: [embed, feedForward] },
  ];
}
