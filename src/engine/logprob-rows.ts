// A probability distribution over the vocabulary in 16 bits a token, as llama.cpp keeps them in its files of base
// distributions: a row has its scale and its smallest log-probability (float32 each), then a step from 0 to 65535 for
// every token, and a padding step where the vocabulary is odd. What is more than 16 below the likeliest token is stored
// as 16 below it.
//
// Rows only: the file around them is src/tools/perplexity/base-file.ts, who computes the logits is score.ts.

/** 16-bit values before the first step: two float32. */
const HEAD = 4;
const STEPS = 65535;
/** How far below the likeliest token a logit is still told apart. */
const RANGE = 16;
/** Adding it to a float32 rounds that to a whole number, halves to even. */
const ROUNDER = 1.5 * 2 ** 23;

/** 16-bit values of a row; always even, so that rows stay aligned for float32. */
export function logprobRowLength(vocabSize: number): number {
  return HEAD + vocabSize + (vocabSize % 2);
}

/** What one row of logits says. */
export interface LogitsSummary {
  /** The likeliest token; the lower id on ties. */
  top: number;
  max: number;
  min: number;
  /** ln of the sum of exp(logit): logprob = logit - logSumExp. */
  logSumExp: number;
}

export function summarizeLogits(
  logits: Float32Array, // [vocab]
): LogitsSummary {
  let top = 0;
  let max = logits[0]!;
  let min = max;
  for (let i = 1; i < logits.length; i++) {
    const value = logits[i]!;
    if (value > max) {
      max = value;
      top = i;
    } else if (value < min) min = value;
  }
  return { top, max, min, logSumExp: max + Math.log(sumOfExponentials(logits, max)) };
}

/** exp(-i / 256) for every i up to the depth below which nothing counts any more: e^-40 of the likeliest. */
const EXP_DEPTH = 40;
const EXP_STEPS = 256;
const expTable: Float64Array = Float64Array.from({ length: EXP_DEPTH * EXP_STEPS }, (_, i) =>
  Math.exp(-i / EXP_STEPS),
);

/**
 * Of exp(logit - max). A table and four terms of the series: wrong by less than 1e-10 of itself, and twice as fast as
 * Math.exp, which is a third of the time that a small model with a large vocabulary takes.
 */
function sumOfExponentials(logits: Float32Array, max: number): number {
  let sum = 0;
  for (let i = 0; i < logits.length; i++) {
    const depth = max - logits[i]!;
    if (depth >= EXP_DEPTH) continue;
    const at = Math.trunc(depth * EXP_STEPS);
    const rest = depth - at / EXP_STEPS; // below 1/256
    sum += expTable[at]! * (1 - rest * (1 - rest * (1 / 2 - rest / 6)));
  }
  return sum;
}

/** Writes a row. The arithmetic is in float32, step by step, so that equal logits give llama.cpp's steps. */
export function writeLogprobRow(
  logits: Float32Array, // [vocab]
  { max, min, logSumExp }: LogitsSummary,
  row: Uint16Array, // [logprobRowLength(vocab)], all zero
): void {
  const { fround } = Math;
  const floor = Math.max(min, fround(max - RANGE));
  const scale = fround(fround(max - floor) / STEPS);
  const head = new Float32Array(row.buffer, row.byteOffset, 2);
  head[0] = scale;
  head[1] = fround(floor - max) - fround(logSumExp - max);
  if (scale === 0) return;
  const inverse = fround(1 / scale);
  for (let i = 0; i < logits.length; i++) {
    if (logits[i]! <= floor) continue;
    const step = fround(inverse * fround(logits[i]! - floor));
    row[HEAD + i] = fround(step + ROUNDER) - ROUNDER;
  }
}

/** A distribution beside a base's. */
export interface RowComparison {
  /** The base's log-probability of the token that came. */
  baseLogprob: number;
  /** The base's likeliest token; the lower id on ties. */
  baseTop: number;
  /** Kullback-Leibler divergence from the base, in nats. Tokens that the base gives less than e^-16 do not count. */
  divergence: number;
}

export function compareWithRow(
  logits: Float32Array, // [vocab]
  { logSumExp }: LogitsSummary,
  row: Uint16Array, // [logprobRowLength(vocab)]
  next: number,
): RowComparison {
  const [scale, lowest] = new Float32Array(row.buffer, row.byteOffset, 2) as unknown as [
    number,
    number,
  ];
  let divergence = 0;
  let baseTop = 0;
  for (let i = 0; i < logits.length; i++) {
    const step = row[HEAD + i]!;
    if (step > row[HEAD + baseTop]!) baseTop = i;
    const base = scale * step + lowest;
    if (base > -RANGE) divergence += Math.exp(base) * (base - logits[i]! + logSumExp);
  }
  return { baseLogprob: scale * row[HEAD + next]! + lowest, baseTop, divergence };
}
