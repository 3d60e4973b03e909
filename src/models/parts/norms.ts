// Norms by name: RMS norm, or LayerNorm if the family has that. Parts that a file does not have (a bias, a weight) are not
// computed.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value, Weight } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import { type Presence, present } from "./linear.ts";

/** [tokens, n] -> [tokens, n]: the norm of that name. */
export type Norm = (x: Value, name: string) => Value;

/** The RMS norms of a layer; undefined: the ones outside of layers. */
export function rmsNorms(
  g: GraphBuilder,
  w: WeightLookup,
  { normEps }: { readonly normEps: number },
  layer: number | undefined,
): Norm {
  return (x, name) => g.rmsNorm(x, w.get(fullName(name, layer)), normEps, name);
}

/** The LayerNorms of a layer, with a bias if the file has one; undefined: the ones outside of layers. */
export function layerNorms(
  g: GraphBuilder,
  w: WeightLookup,
  { normEps }: { readonly normEps: number },
  layer: number | undefined,
): Norm {
  return (x, name) => {
    const full = fullName(name, layer);
    return g.layerNorm(x, w.get(full), w.maybe(full.replace(/weight$/, "bias")), normEps, name);
  };
}

function fullName(name: string, layer: number | undefined): string {
  return layer === undefined ? `${name}.weight` : `blk.${layer}.${name}.weight`;
}

/** The weights of a layer's norms over rows of `size`. */
export function normWeights(
  layer: number,
  size: number,
  names: readonly string[],
  bias: Presence = "none",
): WeightSpec[] {
  return names.flatMap((name) => [
    { name: `blk.${layer}.${name}.weight`, shape: [size] },
    ...present({ name: `blk.${layer}.${name}.bias`, shape: [size] }, bias),
  ]);
}

/** A weight of ones: for norms that have no weight. */
export function ones(g: GraphBuilder, size: number): Weight {
  return g.constant(`ones[${size}]`, new Float32Array(size).fill(1));
}
