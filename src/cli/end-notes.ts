// What to say about the end of a text, where a user may wonder; the usual ends need no words.

import type { ModelInfo, StopReason } from "../index.ts";

export const endNotes: Partial<Record<StopReason, (info: ModelInfo) => string>> = {
  context: ({ contextSize, trainedContext }) =>
    contextSize < trainedContext
      ? `(the context of ${contextSize} tokens is full; -c makes it larger, up to ${trainedContext})`
      : `(the context is full: ${contextSize} tokens are all that this model was trained for)`,
  aborted: () => "(stopped)",
};
