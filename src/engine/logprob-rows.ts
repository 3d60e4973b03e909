// A probability distribution over the vocabulary in 16 bits per token, in the format of llama.cpp's files of base
// distributions. A row has its scale and its smallest log-probability (float32 each), then a value from 0 to 65535 for
// every token, and a padding value if the vocabulary is odd. Log-probabilities more than 16 below the most likely
// token are stored as 16 below it.
//
// This file has only the rows: src/tools/perplexity/base-file.ts has the file around them, and score.ts computes the
// logits.

/** 16-bit values before the first token: two float32. */
const HEAD = 4;
const STEPS = 65535;
/** Logits are distinguished down to this far below the most likely token's. */
const RANGE = 16;
/** Adding this to a float32 rounds it to an integer, halves to even. */
const ROUNDER = 1.5 * 2 ** 23;

/** 16-bit values in a row; always even, so that rows stay aligned for float32. */
export function logprobRowLength(vocabSize: number): number {
  return HEAD + vocabSize + (vocabSize % 2);
}

/** Summary of one row of logits. */
export interface LogitsSummary {
  /** The most likely token; the lower id on ties. */
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

/** exp(-i / 256) for every i up to the depth beyond which a term is negligible: e^-40 of the largest. */
const EXP_DEPTH = 40;
const EXP_STEPS = 256;
const expTable: Float64Array = Float64Array.from({ length: EXP_DEPTH * EXP_STEPS }, (_, i) =>
  Math.exp(-i / EXP_STEPS),
);

/**
 * The sum of exp(logit - max), by a table and four terms of the series. The relative error is below 1e-10, and it is
 * twice as fast as Math.exp, which takes a third of the time of a small model with a large vocabulary.
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

/** Writes a row. Each operation is rounded to float32, so that equal logits give the same values as in llama.cpp. */
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

/** A distribution compared with the base's. */
export interface RowComparison {
  /** The base's log-probability of the actual next token. */
  baseLogprob: number;
  /** The base's most likely token; the lower id on ties. */
  baseTop: number;
  /** Kullback-Leibler divergence from the base, in nats. Tokens to which the base gives less than e^-16 do not count. */
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
