// Gated attention: its result is gated before the output matrix, by a matrix of attention's input: a gate for each value, or one for each
// head.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Activation, Value } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import { type AttentionShape, attend } from "./attention.ts";
import { linear, linearWeights } from "./linear.ts";
import { repeated } from "./repeat.ts";

/** output(attended * activation(gate(x))), or without a gate where the file has none: [tokens, embed] -> [tokens, embed]. */
export function gatedAttention(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  shape: AttentionShape,
  activation: Activation,
): Value {
  const { layer, heads } = shape;
  const attended = attend(g, w, x, shape); // [tokens, heads * vHeadDim]
  const hasGate = w.maybe(`blk.${layer}.attn_gate.weight`) !== undefined;
  if (!hasGate) return linear(g, w, attended, layer, "attn_output"); // [tokens, embed]
  const gate = linear(g, w, x, layer, "attn_gate"); // [tokens, heads * vHeadDim], or [tokens, heads]
  const all = repeated(g, gate, attended.cols / gate.cols, "attn_gate_heads", heads); // [tokens, heads * vHeadDim]
  const gated = g.gate(all, attended, activation, "attn_gated"); // [tokens, heads * vHeadDim]
  return linear(g, w, gated, layer, "attn_output"); // [tokens, embed]
}

/** The weight of the gate. */
export function gateWeights(embed: number, cols: number, layer: number): WeightSpec[] {
  return linearWeights(layer, "attn_gate", [cols, embed]);
}
