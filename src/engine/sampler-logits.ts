// The steps of the sampler that change logits: the mask of a grammar, temperature (fixed or by entropy) and top-n-sigma.

import { type Candidates, entropyOf, forgetOrder, keepBest } from "./sampler-filters.ts";

/** Divides the candidates' logits by the temperature; 0 keeps only the best candidate. */
export function scaleLogits(
  candidates: Candidates,
  logits: Float32Array,
  temperature: number,
): void {
  if (temperature <= 0) {
    keepBest(candidates, logits);
    return;
  }
  if (temperature === 1) return;
  const { ids, count } = candidates;
  for (let i = 0; i < count; i++) logits[ids[i]!]! /= temperature;
}

/**
 * Dynamic temperature: from temperature - range, if one candidate has all the probability, to temperature + range, if
 * all have the same. In between it follows the entropy to the power of the exponent.
 */
export function dynamicTemperature(
  candidates: Candidates,
  logits: Float32Array,
  temperature: number,
  range: number,
  exponent: number,
): number {
  if (candidates.count <= 1) return 1; // no choice
  const low = Math.max(0, temperature - range);
  const high = temperature + range;
  const evenness = entropyOf(candidates, logits) / Math.log(candidates.count);
  return low + (high - low) * evenness ** exponent;
}

/** Top-n-sigma: forbids logits more than n standard deviations below the best one. */
export function forbidFarBelow(candidates: Candidates, logits: Float32Array, n: number): void {
  const { ids, count } = candidates;
  if (n <= 0 || count <= 1) return;
  let max = Number.NEGATIVE_INFINITY;
  let sum = 0;
  let allowed = 0;
  for (let i = 0; i < count; i++) {
    const logit = logits[ids[i]!]!;
    if (logit === Number.NEGATIVE_INFINITY) continue;
    max = Math.max(max, logit);
    sum += logit;
    allowed++;
  }
  const mean = sum / allowed;
  let squares = 0;
  for (let i = 0; i < count; i++) {
    const logit = logits[ids[i]!]!;
    if (logit !== Number.NEGATIVE_INFINITY) squares += (logit - mean) ** 2;
  }
  const lowest = max - n * Math.sqrt(squares / allowed);
  for (let i = 0; i < count; i++) {
    if (logits[ids[i]!]! < lowest) logits[ids[i]!] = Number.NEGATIVE_INFINITY;
  }
  if (!candidates.sorted) forgetOrder(candidates);
}

/** Sets -Infinity for every token without a bit, and for tokens beyond the mask: embedding tables are padded. */
export function forbidTokens(
  logits: Float32Array, // [vocab]
  mask: Uint32Array, // one bit for each token
): void {
  const words = Math.min(mask.length, Math.ceil(logits.length / 32));
  for (let i = 0; i < words; i++) {
    const word = mask[i]!;
    if (word === 0xffffffff) continue;
    const from = i * 32;
    if (word === 0) {
      logits.fill(Number.NEGATIVE_INFINITY, from, from + 32);
      continue;
    }
    for (let left = ~word; left !== 0; left &= left - 1) {
      const id = from + 31 - Math.clz32(left & -left);
      if (id < logits.length) logits[id] = Number.NEGATIVE_INFINITY;
    }
  }
  logits.fill(Number.NEGATIVE_INFINITY, words * 32);
}
