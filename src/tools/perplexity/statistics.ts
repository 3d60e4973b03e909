// The statistics of a perplexity run: sums that grow window by window, and the estimates so far. The estimates are
// llama.cpp's: the error of a mean is its standard error as if positions were independent; the errors of ratios and
// differences take into account that both models read the same text.
//
// Arithmetic only: src/engine/score.ts computes the log-probabilities.

import type { ScoreResult } from "../../api/api.ts";

/** A value and its standard error. */
export interface Estimate {
  value: number;
  error: number;
}

/** The differences between a model and the base. */
export interface BaseComparison {
  /** The base's own perplexity on the same tokens. */
  perplexity: Estimate;
  /** Perplexity divided by the base's. */
  ratio: Estimate;
  /** Kullback-Leibler divergence from the base, in nats: 0 is the same distribution. */
  divergence: Estimate & { median: number; p90: number; p99: number; p999: number; max: number };
  /** Change of the probability of the actual next token: its mean and its root mean square; 0 to 1. */
  change: { mean: Estimate; rms: Estimate };
  /** Fraction of positions at which both find the same token most likely. */
  sameTop: Estimate;
}

/** The estimates after some windows. */
export interface RunningPerplexity {
  /** exp of the mean negative log-probability. */
  perplexity: Estimate;
  /** Tokens that were scored. */
  scored: number;
  base: (Pick<BaseComparison, "ratio" | "sameTop"> & { divergence: Estimate }) | undefined;
}

/** Sums over all scored positions. */
export interface Sums {
  count: number;
  /** Sum of the negative log-probability, and of its square. */
  nll: number;
  nll2: number;
  base: BaseSums | undefined;
}

interface BaseSums {
  nll: number;
  nll2: number;
  /** Sum of the product of both models' negative log-probabilities. */
  product: number;
  divergences: number[];
  divergence: number;
  divergence2: number;
  /** Sums of the changes of probability, and of their powers. */
  change: number;
  change2: number;
  change4: number;
  sameTop: number;
}

export function newSums(withBase: boolean): Sums {
  const base: BaseSums = {
    nll: 0,
    nll2: 0,
    product: 0,
    divergences: [],
    divergence: 0,
    divergence2: 0,
    change: 0,
    change2: 0,
    change4: 0,
    sameTop: 0,
  };
  return { count: 0, nll: 0, nll2: 0, base: withBase ? base : undefined };
}

export function addScores(sums: Sums, { logprobs, top, base }: ScoreResult): void {
  sums.count += logprobs.length;
  for (const logprob of logprobs) {
    sums.nll -= logprob;
    sums.nll2 += logprob * logprob;
  }
  const to = sums.base;
  if (!to || !base) return;
  for (const [i, logprob] of logprobs.entries()) {
    const baseLogprob = base.logprobs[i]!;
    const divergence = base.divergences[i]!;
    const change = Math.exp(logprob) - Math.exp(baseLogprob);
    to.nll -= baseLogprob;
    to.nll2 += baseLogprob * baseLogprob;
    to.product += logprob * baseLogprob;
    to.divergences.push(divergence);
    to.divergence += divergence;
    to.divergence2 += divergence * divergence;
    to.change += change;
    to.change2 += change ** 2;
    to.change4 += change ** 4;
    if (top[i] === base.top[i]) to.sameTop++;
  }
}

export function runningPerplexity(sums: Sums): RunningPerplexity {
  const { count, base } = sums;
  return {
    perplexity: exponential(mean(sums.nll, sums.nll2, count)),
    scored: count,
    base: base && {
      ratio: ratioTo(sums, base),
      divergence: mean(base.divergence, base.divergence2, count),
      sameTop: share(base.sameTop, count),
    },
  };
}

export function compareWithBase(sums: Sums): BaseComparison | undefined {
  const { count, base } = sums;
  if (!base) return undefined;
  const sorted = Float64Array.from(base.divergences).sort();
  const square = mean(base.change2, base.change4, count);
  const rms = Math.sqrt(square.value);
  return {
    perplexity: exponential(mean(base.nll, base.nll2, count)),
    ratio: ratioTo(sums, base),
    divergence: {
      ...mean(base.divergence, base.divergence2, count),
      median: percentile(sorted, 0.5),
      p90: percentile(sorted, 0.9),
      p99: percentile(sorted, 0.99),
      p999: percentile(sorted, 0.999),
      max: percentile(sorted, 1),
    },
    change: {
      mean: mean(base.change, base.change2, count),
      // The derivative of a square root, times the square's error.
      rms: { value: rms, error: rms > 0 ? square.error / (2 * rms) : 0 },
    },
    sameTop: share(base.sameTop, count),
  };
}

/** Mean and standard error from a sum and a sum of squares. */
function mean(sum: number, squares: number, count: number): Estimate {
  const value = sum / count;
  const variance = squares / count - value * value;
  return { value, error: variance > 0 && count > 1 ? Math.sqrt(variance / (count - 1)) : 0 };
}

/** exp() of an estimate, with the error that follows from its derivative. */
function exponential({ value, error }: Estimate): Estimate {
  return { value: Math.exp(value), error: Math.exp(value) * error };
}

/** Positions that are hard for both models cancel in the ratio and in its error. */
function ratioTo({ count, nll, nll2 }: Sums, base: BaseSums): Estimate {
  const own = mean(nll, nll2, count);
  const other = mean(base.nll, base.nll2, count);
  const covariance = (base.product / count - own.value * other.value) / Math.max(1, count - 1);
  const variance = own.error ** 2 + other.error ** 2 - 2 * covariance;
  return exponential({
    value: own.value - other.value,
    error: Math.sqrt(Math.max(0, variance)),
  });
}

function share(part: number, count: number): Estimate {
  const value = part / count;
  return { value, error: Math.sqrt((value * (1 - value)) / Math.max(1, count - 1)) };
}

/** A percentile of sorted values, interpolated between two of them. */
export function percentile(sorted: Float64Array, fraction: number): number {
  const at = fraction * (sorted.length - 1);
  const below = Math.floor(at);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below]! + (at - below) * (sorted[above]! - sorted[below]!);
}
