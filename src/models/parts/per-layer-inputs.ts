// Per-layer inputs of Gemma 3n and 4: besides its residual, every layer gets a small vector that depends on the token alone.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import { linear, linearWeights } from "./linear.ts";
import { normWeights, rmsNorms } from "./norms.ts";

export interface PerLayerShape {
  readonly layers: number;
  readonly embed: number;
  readonly vocabSize: number;
  readonly normEps: number;
  /** Values of each layer's input. */
  readonly perLayer: number;
}

/** The inputs of all layers, from the scaled embeddings: [tokens, embed] -> [tokens, layers * perLayer]. */
export function perLayerInputs(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  { embed, perLayer, normEps }: PerLayerShape,
): Value {
  const table = g.embed(w.get("per_layer_token_embd.weight"), "per_layer_embed"); // [tokens, layers * perLayer]
  const own = g.scale(table, Math.sqrt(perLayer), "per_layer_embed_scaled"); // [tokens, layers * perLayer]
  const projected = g.matmul(x, w.get("per_layer_model_proj.weight"), "per_layer_model_proj"); // [tokens, layers * perLayer]
  const scaled = g.scale(projected, 1 / Math.sqrt(embed), "per_layer_proj_scaled"); // [tokens, layers * perLayer]
  const norm = w.get("per_layer_proj_norm.weight"); // [perLayer]
  const normed = g.rmsNorm(scaled, norm, normEps, "per_layer_proj_norm"); // [tokens, layers * perLayer]
  return g.scale(g.add(normed, own, "per_layer_sum"), Math.SQRT1_2, "per_layer"); // [tokens, layers * perLayer]
}

/** A layer's result from its input, gated by the residual x: [tokens, embed] -> [tokens, embed]. */
export function perLayerOutput(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  inputs: Value,
  layer: number,
  shape: PerLayerShape,
): Value {
  const { perLayer } = shape;
  const own = g.slice(inputs, layer * perLayer, perLayer, "per_layer_input"); // [tokens, perLayer]
  const gate = linear(g, w, x, layer, "inp_gate"); // [tokens, perLayer]
  const inner = g.gate(gate, own, "gelu", "per_layer_gelu"); // [tokens, perLayer]
  const out = linear(g, w, inner, layer, "proj"); // [tokens, embed]
  return rmsNorms(g, w, shape, layer)(out, "post_norm"); // [tokens, embed]
}

/** The weights of both ends. */
export function perLayerEndWeights({
  layers,
  embed,
  vocabSize,
  perLayer,
}: PerLayerShape): WeightSpec[] {
  return [
    { name: "per_layer_token_embd.weight", shape: [vocabSize, layers * perLayer] },
    { name: "per_layer_model_proj.weight", shape: [layers * perLayer, embed] },
    { name: "per_layer_proj_norm.weight", shape: [perLayer] },
  ];
}

/** The weights of a layer. */
export function perLayerWeights({ embed, perLayer }: PerLayerShape, layer: number): WeightSpec[] {
  return [
    ...linearWeights(layer, "inp_gate", [perLayer, embed]),
    ...linearWeights(layer, "proj", [embed, perLayer]),
    ...normWeights(layer, embed, ["post_norm"]),
  ];
}
