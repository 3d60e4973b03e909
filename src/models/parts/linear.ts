// Matrices of a layer by name, with the bias and the scale that a file may have beside them.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value } from "../../graph/graph.ts";
import { rowsOf } from "../../graph/weight-source.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";

/** x * weight^T + bias, or x * weight^T * scale + bias: [tokens, inputs] -> [tokens, outputs]. */
export function linear(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  name: string,
): Value {
  const full = `blk.${layer}.${name}`;
  const scale = w.maybe(`${full}.scale`); // [1]: ternary weights have one for the whole matrix
  const bias = w.maybe(`${full}.bias`);
  if (!scale) return g.matmul(x, w.get(`${full}.weight`), name, bias);
  const scaled = g.mulWeight(g.matmul(x, w.get(`${full}.weight`), name), scale, `${name}_scaled`);
  return bias ? g.addWeight(scaled, bias, `${name}_biased`) : scaled;
}

/** Outputs `from` to `from + count` of the fused matrix `fused`, as `name`: [tokens, inputs] -> [tokens, count]. */
export function linearRows(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  { layer, fused, name, from, count }: RowRange,
): Value {
  const full = `blk.${layer}.${fused}`;
  const bias = w.maybe(`${full}.bias`);
  const rows = rowsOf(w.get(`${full}.weight`), from, count);
  return g.matmul(x, rows, name, bias && rowsOf(bias, from, count));
}

export interface RowRange {
  readonly layer: number;
  readonly fused: string;
  readonly name: string;
  readonly from: number;
  readonly count: number;
}

/** Whether files have a weight. */
export type Presence = "required" | "optional" | "none";

/** The weights that linear() reads. */
export function linearWeights(
  layer: number,
  name: string,
  [outputs, inputs]: readonly [outputs: number, inputs: number],
  bias: Presence = "none",
): WeightSpec[] {
  const full = `blk.${layer}.${name}`;
  return [
    { name: `${full}.weight`, shape: [outputs, inputs] },
    ...present({ name: `${full}.bias`, shape: [outputs] }, bias),
  ];
}

export function present(spec: WeightSpec, presence: Presence): WeightSpec[] {
  if (presence === "none") return [];
  return [presence === "optional" ? { ...spec, optional: true } : spec];
}
