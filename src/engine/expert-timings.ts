// The timings of a generation about experts that were read on demand (docs/inside/disk.md): differences of the backend's counters.

import type { ExpertReads, Timings } from "../api/api.ts";

/** From the counters before the prompt, between prompt and generation, and after. */
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
