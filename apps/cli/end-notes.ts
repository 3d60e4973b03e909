// Notes about the end of a text that may surprise a user; the usual ends need none.

import { canBeLarger, trainedFor } from "../../src/base/context-advice.ts";
import type { ModelInfo, StopReason } from "../../src/index.ts";

export const endNotes: Partial<Record<StopReason, (info: ModelInfo) => string>> = {
  context: (info) =>
    canBeLarger(info)
      ? `(the context is full: ${info.contextSize} tokens; use a larger -c, up to ${info.trainedContext})`
      : `(the context is full: ${trainedFor(info)})`,
  aborted: () => "(stopped)",
};
