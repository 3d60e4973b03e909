// The head that ranks texts: from the hidden state of one token, or of a whole text, to a score for each label. Parts that a file
// does not have (a first layer, a norm, biases) are not computed.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value } from "../../graph/graph.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";

export interface HeadShape {
  readonly normEps: number;
  /** After the first layer. Default: "tanh". */
  readonly activation?: "tanh" | "gelu";
}

export function hasClassifier(w: WeightLookup): boolean {
  return ["cls.weight", "cls.output.weight"].some((name) => w.maybe(name) !== undefined);
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

/** The layers of a family's head: two; two with a norm between them; one, with scores within -1 and 1. */
export type HeadLayers = "two" | "normed" | "one";

/** The weights that classifierScores() reads, all of which a file may lack; only scores (pooling "rank") need them. */
export function classifierWeights(
  { embed, labels }: { readonly embed: number; readonly labels: number },
  layers: HeadLayers = "two",
): WeightSpec[] {
  const optional = (name: string, ...shape: number[]) => ({
    name,
    shape,
    optional: true,
    unread: true,
  });
  if (layers === "one") return [optional("cls.weight", 1, embed), optional("cls.bias", 1)];
  return [
    optional("cls.weight", embed, embed),
    optional("cls.bias", embed),
    ...(layers === "normed" ? [optional("cls.norm.weight", embed)] : []),
    optional("cls.output.weight", labels, embed),
    optional("cls.output.bias", labels),
  ];
}
