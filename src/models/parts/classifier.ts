// The head that ranks texts: from the hidden state of one token, or of a whole text, to a score for each label. What a file does
// not have (a first layer, a norm, biases) is not computed.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";

export interface HeadShape {
  readonly normEps: number;
  /** After the first layer. Default: "tanh". */
  readonly activation?: "tanh" | "gelu";
}

/** [outputs, embed] -> [logits, labels]; undefined: the file has no head. */
export function classifierScores(
  g: GraphBuilder,
  w: WeightLookup,
  hidden: Value,
  { normEps, activation = "tanh" }: HeadShape,
): Value | undefined {
  const [dense, output] = [w.maybe("cls.weight"), w.maybe("cls.output.weight")];
  const outputBias = w.maybe("cls.output.bias");
  if (!dense) return output && g.logits(hidden, output, "cls_output", outputBias); // [logits, labels]
  const inner = g.logits(hidden, dense, "cls", w.maybe("cls.bias")); // [logits, embed]
  const active =
    activation === "tanh" ? g.softcap(inner, 1, "cls_tanh") : g.activate(inner, "gelu", "cls_gelu"); // [logits, embed]
  const norm = w.maybe("cls.norm.weight");
  const normed = norm ? g.layerNorm(active, norm, undefined, normEps, "cls_norm") : active; // [logits, embed]
  return output ? g.matmul(normed, output, "cls_output", outputBias) : normed; // [logits, labels]
}

/** The weights that classifierScores() reads. `dense`: outputs of the first layer. Default: embed. */
export function classifierWeights(
  { embed, labels }: { readonly embed: number; readonly labels: number },
  dense: number = embed,
): WeightSpec[] {
  return [
    { name: "cls.weight", shape: [dense, embed], optional: true },
    { name: "cls.bias", shape: [dense], optional: true },
    { name: "cls.norm.weight", shape: [embed], optional: true },
    { name: "cls.output.weight", shape: [labels, embed], optional: true },
    { name: "cls.output.bias", shape: [labels], optional: true },
  ];
}
