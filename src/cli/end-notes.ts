// Notes about the end of a text where a user may wonder; the usual ends need none.

import type { ModelInfo, StopReason } from "../index.ts";

export const endNotes: Partial<Record<StopReason, (info: ModelInfo) => string>> = {
  context: ({ contextSize, trainedContext }) =>
    contextSize < trainedContext
      ? `(the context is full: ${contextSize} tokens; use a larger -c, up to ${trainedContext})`
      : `(the context is full: this model was trained for ${contextSize} tokens)`,
  aborted: () => "(stopped)",
};
