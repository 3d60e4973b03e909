// What to do about a text that the context does not hold: a larger context, only where the model was trained for one.

import type { ModelInfo } from "../api/api.ts";

export function contextAdvice({
  contextSize,
  trainedContext,
}: Pick<ModelInfo, "contextSize" | "trainedContext">): string {
  return contextSize < trainedContext
    ? `Shorten it, or open the model with a larger contextSize (trained for ${trainedContext})`
    : `Shorten it: this model was trained for ${trainedContext} tokens`;
}
