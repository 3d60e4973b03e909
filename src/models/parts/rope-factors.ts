// Factors on the frequencies of rope that are tensors of the file: one for all contexts, or one for short and one for long ones.

import type { Weight } from "../../graph/graph.ts";
import type { ModelConfig, WeightLookup, WeightSpec } from "../arch.ts";

/** The context that a model is loaded with, and the one up to which factors are for short ones. */
export type Contexts = Partial<Pick<ModelConfig, "context" | "trainedContext" | "originalContext">>;

/** [dims / 2]; undefined: the file has none. */
export function ropeFactors(w: WeightLookup, c: Contexts): Weight | undefined {
  return w.maybe("rope_freqs.weight") ?? w.maybe(isLong(c) ? LONG : SHORT);
}

const LONG = "rope_factors_long.weight";
const SHORT = "rope_factors_short.weight";

export function ropeFactorWeights({
  rope,
  ...c
}: Contexts & Pick<ModelConfig, "rope">): WeightSpec[] {
  const factors = (name: string) => ({ name, shape: [rope.dims / 2], optional: true });
  const other = isLong(c) ? SHORT : LONG;
  return [
    factors("rope_freqs.weight"),
    ...[LONG, SHORT].map((name) => ({ ...factors(name), unread: name === other })),
  ];
}

function isLong({
  trainedContext = 0,
  context = trainedContext,
  originalContext = trainedContext,
}: Contexts): boolean {
  return context > originalContext;
}
