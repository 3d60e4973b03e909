// The distribution that the sampler drew from, as log-probabilities: the candidates that its steps left, after
// temperature. This is llama.cpp's post_sampling_probs. RawLogprobs (sampler.ts) are the model's own, before any step.

import type { Candidates } from "./sampler-filters.ts";
import type { SampledToken } from "./sampling.ts";

/** Must be called right after drawCandidate(), while its weights are in the scratch memory. */
export function drawnProbabilities(
  { ids, count, scratch }: Candidates,
  id: number,
  alternatives: number,
): SampledToken {
  const entries: { id: number; weight: number }[] = [];
  let total = 0;
  for (let i = 0; i < count; i++) {
    const weight = scratch![i]!;
    total += weight;
    if (weight > 0) entries.push({ id: ids[i]!, weight }); // a token that cannot be drawn is no alternative
  }
  const logprobOf = (weight: number): number => Math.log(weight / total);
  const own = entries.find((entry) => entry.id === id)!;
  const top = entries
    .sort((a, b) => b.weight - a.weight || a.id - b.id)
    .slice(0, alternatives)
    .map((entry) => ({ id: entry.id, logprob: logprobOf(entry.weight) }));
  return { id, logprob: logprobOf(own.weight), top };
}

/** The result of a greedy sampler: no other token could have been chosen. */
export function certainly(id: number, alternatives: number): SampledToken {
  return { id, logprob: 0, top: alternatives > 0 ? [{ id, logprob: 0 }] : [] };
}
