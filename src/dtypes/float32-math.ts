// Arithmetic that the quantizers share, done in float32 steps as C does it, so that the bytes come out the same.
//
// A sum, product, quotient or root of float32 values computed in double and then rounded by Math.fround is the float32
// result (a double has more than twice the bits), so Math.fround after every step is all that is needed. Dequantizing
// needs none of this: its products are exact.

import { f32ToF16 } from "../base/half.ts";

const f = Math.fround;

/** 1.5 * 2^23: added to a float32, it pushes the fraction out and leaves the integer, rounded half to even. */
const integerMagic = 12582912;
const scratchF32 = new Float32Array(1);
const scratchI32 = new Int32Array(scratchF32.buffer);

/**
 * `value` (a float32) rounded half to even. Beyond 2^22 the result is the low 23 bits of ggml's bit trick,
 * which are wrong, but ggml writes them for such values.
 */
export function nearestInt(value: number): number {
  if (value > -4194304 && value < 4194304) return f(value + integerMagic) - integerMagic;
  scratchF32[0] = value + integerMagic;
  return (scratchI32[0]! & 0x7fffff) - 0x400000;
}

/** `value` rounded half away from zero, as C's roundf does, then wrapped to 32 bits. */
export function roundHalfAway(value: number): number {
  return (value < 0 ? value - 0.5 : value + 0.5) | 0;
}

export function clamp(value: number, low: number, high: number): number {
  return value < low ? low : value > high ? high : value;
}

/** 1/value, and 0 for 0. The test for zero is "===", here and elsewhere, since a NaN counts as true in C. */
export function reciprocalOrZero(value: number): number {
  return value === 0 ? 0 : f(1 / value);
}

/** The first value with the largest magnitude, with its sign; 0 if all are 0. */
export function largestMagnitude(x: Float32Array, at: number, count: number): number {
  let magnitude = 0;
  let largest = 0;
  for (let i = at; i < at + count; i++) {
    const value = x[i]!;
    const abs = Math.abs(value);
    if (abs > magnitude) {
      magnitude = abs;
      largest = value;
    }
  }
  return largest;
}

export function sumOfSquares(x: Float32Array, at: number, count: number): number {
  let sum = 0;
  for (let i = at; i < at + count; i++) sum = f(sum + f(x[i]! * x[i]!));
  return sum;
}

/** weights[weightsAt + i] = importance[i] * sqrt(sigma2 + x[i]^2): the cost of an error at i. Returns their sum. */
export function weighByImportance(
  weights: Float32Array,
  weightsAt: number,
  importance: Float32Array,
  importanceAt: number,
  x: Float32Array,
  at: number,
  count: number,
  sigma2: number,
): number {
  let sum = 0;
  for (let i = 0; i < count; i++) {
    const value = x[at + i]!;
    const spread = f(Math.sqrt(f(sigma2 + f(value * value))));
    const weight = f(importance[importanceAt + i]! * spread);
    weights[weightsAt + i] = weight;
    sum = f(sum + weight);
  }
  return sum;
}

/** Super-blocks of 256 values to be weighed, in sub-blocks of `size`. */
export interface WeighedSubBlocks {
  /** [blocks x 256], and their sums: [blocks x 256 / size]. */
  readonly weights: Float32Array;
  readonly sums: Float32Array;
  readonly x: Float32Array;
  readonly from: number;
  readonly blocks: number;
  readonly size: 16 | 32;
  /** Repeats from row to row; `position` is where the first super-block stands in the call's values. */
  readonly importance: Float32Array;
  readonly position: number;
  /** The number of mean squares added to a value's square: ggml adds one for some types and two for others. */
  readonly spread: 1 | 2;
}

/** weighByImportance() for all sub-blocks. */
export function weighSubBlocks(of: WeighedSubBlocks): void {
  const { weights, sums, x, from, blocks, size, importance, position, spread } = of;
  const subBlocks = 256 / size;
  for (let block = 0; block < blocks; block++) {
    const sigma2 = f(f(spread * sumOfSquares(x, from + 256 * block, 256)) / 256);
    for (let subBlock = subBlocks * block; subBlock < subBlocks * (block + 1); subBlock++) {
      const column = (position + size * subBlock) % importance.length;
      const [own, at] = [size * subBlock, from + size * subBlock];
      sums[subBlock] = weighByImportance(weights, own, importance, column, x, at, size, sigma2);
    }
  }
}

/** Weights of a block of `count` values: by importance, or, without one, their squares. */
export function weighBlock(
  weights: Float32Array,
  weightsAt: number,
  x: Float32Array,
  at: number,
  count: number,
  importance: Float32Array | undefined,
  position: number,
): void {
  if (importance === undefined) {
    for (let i = 0; i < count; i++) weights[weightsAt + i] = f(x[at + i]! * x[at + i]!);
    return;
  }
  const sigma2 = f(sumOfSquares(x, at, count) * (2 / count));
  const column = position % importance.length;
  weighByImportance(weights, weightsAt, importance, column, x, at, count, sigma2);
}

/**
 * A scale that is NaN. Processors differ in its sign (x86-64 sets it, arm64 does not). Files must be the same on every
 * machine, so this is the NaN that ggml writes on x86-64.
 */
const NAN_SCALE = 0xfe00;

/** Stores `value` as a little-endian half float at byte `at`; returns the stored bits. */
export function storeF16(dst: Uint8Array, at: number, value: number): number {
  const bits = Number.isNaN(value) ? NAN_SCALE : f32ToF16(value);
  dst[at] = bits & 255;
  dst[at + 1] = bits >>> 8;
  return bits;
}
