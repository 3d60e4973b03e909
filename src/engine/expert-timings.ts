// What a generation says about experts that were read on demand (docs/memory.md): the differences of what the backend has counted.

import type { ExpertReads, Timings } from "../api/api.ts";

/** By what was counted before the prompt, between it and the rest, and after. */
export function expertTimings(
  before: ExpertReads | undefined,
  prompt: ExpertReads | undefined,
  after: ExpertReads | undefined,
): Pick<Timings, "experts"> {
  if (!before || !prompt || !after) return {};
  return {
    experts: {
      hits: after.hits - before.hits,
      misses: after.misses - before.misses,
      promptBytes: prompt.readBytes - before.readBytes,
      generatedBytes: after.readBytes - prompt.readBytes,
    },
  };
}
