// A second, slow and obvious sampler: the exact distribution that a chain of settings gives.
//
// Written from the definitions, in probabilities and plain arrays, without a line of src/engine.

import type { SamplingOptions } from "../../src/api/api.ts";

interface Entry {
  id: number;
  p: number;
}

type ChainOptions = Pick<
  SamplingOptions,
  "temperature" | "topK" | "topP" | "minP" | "typicalP" | "logitBias"
>;

/** Everything switched off: a plain draw from the softmax. */
export const off: SamplingOptions = {
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  typicalP: 1,
  seed: 1,
};

export function randomLogits(size: number, spread: number, seed: number): Float32Array {
  const uniform = xoshiro128(Uint32Array.of(seed, 2, 3, 4));
  // Rounded to eighths: many equal logits.
  return Float32Array.from({ length: size }, () => Math.round(uniform() * spread * 8) / 8);
}

/** xoshiro128** by Blackman and Vigna: another generator than the sampler's. */
function xoshiro128(s: Uint32Array): () => number {
  const rotate = (word: number, bits: number): number => (word << bits) | (word >>> (32 - bits));
  const next = (): number => {
    const result = Math.imul(rotate(Math.imul(s[1]!, 5), 7), 9) >>> 0;
    const shifted = s[1]! << 9;
    s[2]! ^= s[0]!;
    s[3]! ^= s[1]!;
    s[1]! ^= s[2]!;
    s[0]! ^= s[3]!;
    s[2]! ^= shifted;
    s[3] = rotate(s[3]!, 11);
    return result;
  };
  return () => ((next() >>> 5) * 2 ** 26 + (next() >>> 6)) * 2 ** -53;
}

export function softmax(logits: ArrayLike<number>): number[] {
  const max = Math.max(...Array.from(logits));
  const weights = Array.from(logits, (logit) => Math.exp(logit - max));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

/** The probability of every token, in the order of the chain: bias, top-k, typical, top-p, min-p, temperature. */
export function exactDistribution(logits: readonly number[], options: ChainOptions): number[] {
  const biased = [...logits];
  const bias = new Map(Object.entries((options.logitBias ?? {}) as Record<string, number>));
  for (const [id, value] of bias) biased[Number(id)]! += value;
  let left: Entry[] = softmax(biased).map((p, id) => ({ id, p }));

  if (options.topK) left = byLikelihood(left).slice(0, options.topK);
  left = normalized(left);
  if (options.typicalP! < 1) {
    const entropy = left.reduce((sum, { p }) => sum - (p > 0 ? p * Math.log(p) : 0), 0);
    const strangeness = ({ p }: Entry) => Math.abs(-Math.log(p) - entropy);
    left.sort((a, b) => strangeness(a) - strangeness(b) || a.id - b.id);
    left = normalized(untilReached(left, options.typicalP!));
  }
  if (options.topP! < 1) left = normalized(untilReached(byLikelihood(left), options.topP!));
  const best = Math.max(...left.map(({ p }) => p));
  left = left.filter(({ p }) => p >= options.minP! * best);

  left = normalized(left.map(({ id, p }) => ({ id, p: p ** (1 / options.temperature!) })));
  const result = new Array<number>(logits.length).fill(0);
  for (const { id, p } of left) result[id] = p;
  return result;
}

/**
 * Pearson's chi-square as a number of standard deviations (by Wilson and Hilferty): within a few of
 * 0 for draws from the distribution, far above for draws from another one; infinite when something
 * impossible was drawn.
 */
export function misfit(counts: readonly number[], distribution: readonly number[]): number {
  const draws = counts.reduce((sum, count) => sum + count, 0);
  let sum = 0;
  let cells = 0;
  for (const [id, p] of distribution.entries()) {
    if (p === 0 && counts[id]! > 0) return Number.POSITIVE_INFINITY;
    if (p === 0) continue;
    sum += (counts[id]! - draws * p) ** 2 / (draws * p);
    cells++;
  }
  const degrees = cells - 1;
  const spread = 2 / (9 * degrees);
  return (Math.cbrt(sum / degrees) - (1 - spread)) / Math.sqrt(spread);
}

function byLikelihood(entries: readonly Entry[]): Entry[] {
  return [...entries].sort((a, b) => b.p - a.p || a.id - b.id);
}

function untilReached(entries: readonly Entry[], p: number): Entry[] {
  let reached = 0;
  const last = entries.findIndex((entry) => {
    reached += entry.p;
    return reached >= p;
  });
  return last === -1 ? [...entries] : entries.slice(0, last + 1);
}

function normalized(entries: readonly Entry[]): Entry[] {
  const total = entries.reduce((sum, { p }) => sum + p, 0);
  return entries.map(({ id, p }) => ({ id, p: p / total }));
}
