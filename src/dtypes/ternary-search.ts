// The search shared by the quantizers of IQ1_S and IQ1_M: sub-blocks of ternary values whose quants, eight at a time, must be a
// codebook point. A split (ternary-split.ts) finds the scale and the quant of each value; eight quants that are no point become
// the best nearby point (codebook-neighbours.ts), and the scale is fitted again. Steps and order are ggml's.

import { type CodebookNeighbours, neighboursOf } from "./codebook-neighbours.ts";
import { iq1sCodebook } from "./codebooks.ts";
import { clamp, nearestInt, sumOfSquares } from "./float32-math.ts";
import { largestFloat } from "./ladder-search.ts";
import {
  type Split,
  shiftedDown,
  shiftedUp,
  shiftedValues,
  splitHalves,
  splitWhole,
} from "./ternary-split.ts";

const f = Math.fround;

/** Both types have the same codebook. */
export const ternaryNeighbours: () => CodebookNeighbours = neighboursOf(iq1sCodebook, 8, 3);

export interface TernarySearch {
  /** Values of a sub-block. */
  readonly size: 16 | 32;
  /** A sub-block whose largest magnitude is below this counts as zero. */
  readonly zero: number;
  /** Whether each half of a sub-block has a shift of its own. */
  readonly halves: boolean;
}

/** Results of the search for a block of 256 values. */
export interface TernaryFits {
  /** One for each sub-block, none below 0; NaN if sums overflowed. */
  readonly scales: Float32Array;
  /** Split.shift of each sub-block. */
  readonly shifts: Uint8Array;
  /** Numbers of points, one for 8 values each. */
  readonly points: Uint16Array;
  /** Weights of the 256 values. */
  readonly weights: Float32Array;
}

export const ternaryFits: TernaryFits = {
  scales: new Float32Array(16),
  shifts: new Uint8Array(16),
  points: new Uint16Array(32),
  weights: new Float32Array(256),
};

// Scratch of one sub-block.
const order = new Uint8Array(32); // of its values, ascending
const values = new Float32Array(32); // in that order
const weights = new Float32Array(32);
const isSecond = new Uint8Array(32);
const quants = new Uint8Array(32);
const split: Split = { first: 0, second: 0, shift: 0, scale: 0, isFound: false };

/** Fills `ternaryFits` for the 256 values from x[at] on; `column` is where their importance begins. */
export function fitTernary(
  search: TernarySearch,
  x: Float32Array,
  at: number,
  importance: Float32Array | undefined,
  column: number,
): void {
  const { size } = search;
  const fits = ternaryFits;
  const sigma2 = f(f(2 * sumOfSquares(x, at, 256)) / 256);
  for (let i = 0; i < 256; i++) {
    const squared = f(x[at + i]! * x[at + i]!);
    fits.weights[i] = importance
      ? importance[column + i]! * f(Math.sqrt(f(sigma2 + squared)))
      : squared;
  }
  fits.points.fill(0);
  for (let subBlock = 0; subBlock < 256 / size; subBlock++) {
    const first = size * subBlock;
    fits.scales[subBlock] = 0;
    fits.shifts[subBlock] = 0;
    if (isZero(search, x, at + first)) continue;
    sort(search, x, at + first, first);
    if (search.halves) splitHalves(values, weights, isSecond, split);
    else splitWhole(values, weights, size, split);
    if (!split.isFound) continue;
    fits.scales[subBlock] = fitPoints(search, x, at + first, first);
    fits.shifts[subBlock] = split.shift;
  }
}

function isZero({ size, zero }: TernarySearch, x: Float32Array, at: number): boolean {
  let max = 0;
  for (let i = at; i < at + size; i++) max = Math.max(max, Math.abs(x[i]!));
  return max < zero;
}

/** Values and weights of a sub-block in ascending order of the values; equal ones keep theirs. */
function sort({ size }: TernarySearch, x: Float32Array, at: number, weightsAt: number): void {
  for (let i = 0; i < size; i++) {
    const value = x[at + i]!;
    let place = i;
    for (; place > 0 && values[place - 1]! > value; place--) {
      values[place] = values[place - 1]!;
      order[place] = order[place - 1]!;
    }
    values[place] = value;
    order[place] = i;
  }
  for (let i = 0; i < size; i++) {
    weights[i] = ternaryFits.weights[weightsAt + order[i]!]!;
    isSecond[i] = order[i]! < size / 2 ? 0 : 1;
  }
}

/** Points for the quants of `split`, and the scale that fits them; NaN if sums overflowed. */
function fitPoints(
  { size, halves }: TernarySearch,
  x: Float32Array,
  at: number,
  weightsAt: number,
): number {
  const { points } = ternaryFits;
  const neighbours = ternaryNeighbours();
  for (let j = 0; j < size; j++) {
    quants[order[j]!] = j < split.first ? 0 : j < split.second ? 1 : 2;
  }
  let { scale } = split;
  if (scale < 0) {
    for (let j = 0; j < size; j++) quants[j] = 2 - quants[j]!;
    scale = -scale;
    split.shift = (halves ? 3 : 1) - split.shift;
  }
  let isChanged = false;
  let isFound = true;
  for (let eight = 0; eight < size; eight += 8) {
    let key = 0;
    for (let i = 0; i < 8; i++) key |= quants[eight + i]! << (2 * i);
    let point = neighbours.pointOf[key]!;
    if (point < 0) {
      isChanged = true;
      point = nearest(
        -1 - point,
        x,
        at + eight,
        weightsAt + eight,
        scale,
        shiftedAt(halves, eight),
      );
    }
    if (point < 0) isFound = false;
    points[(weightsAt + eight) / 8] = Math.max(point, 0);
  }
  if (!isFound || Number.isNaN(scale)) return Number.NaN;
  return isChanged ? refitted({ size, halves }, x, at, weightsAt, scale) : scale;
}

/** The values of the eight quants from `eight` on. */
function shiftedAt(halves: boolean, eight: number): Float32Array {
  if (halves) return shiftedValues(split.shift, eight > 0);
  return split.shift === 0 ? shiftedUp : shiftedDown;
}

/** The scale that fits the points best. */
function refitted(
  { size, halves }: Pick<TernarySearch, "size" | "halves">,
  x: Float32Array,
  at: number,
  weightsAt: number,
  scale: number,
): number {
  const { points, weights } = ternaryFits;
  const { digits } = ternaryNeighbours();
  let sumQX = 0;
  let sumQQ = 0;
  for (let i = 0; i < size; i++) {
    const shifted = shiftedAt(halves, i & ~7);
    const point = points[(weightsAt + i) >> 3]!;
    const q = shifted[digits[8 * point + (i & 7)]!]!;
    const weighted = f(weights[weightsAt + i]! * q);
    sumQX = f(sumQX + f(weighted * x[at + i]!));
    sumQQ = f(sumQQ + f(weighted * q));
  }
  return sumQX > 0 && sumQQ > 0 ? f(sumQX / sumQQ) : scale;
}

/** The best point of a list for eight values; -1 where no distance is finite. */
function nearest(
  list: number,
  x: Float32Array,
  at: number,
  weightsAt: number,
  scale: number,
  shifted: Float32Array,
): number {
  const { digits, lists } = ternaryNeighbours();
  const { weights } = ternaryFits;
  let found = -1;
  let best = largestFloat;
  const end = list + 1 + lists[list]!;
  for (let entry = list + 1; entry < end; entry++) {
    const point = 8 * lists[entry]!;
    let sum = 0;
    // A sum that is too large already cannot become the smallest: its terms are not negative.
    for (let i = 0; i < 8 && sum < best; i++) {
      const error = f(f(scale * shifted[digits[point + i]!]!) - x[at + i]!);
      sum = f(sum + f(f(weights[weightsAt + i]! * error) * error));
    }
    if (!(sum < best)) continue;
    best = sum;
    found = lists[entry]!;
  }
  return found;
}

/** Multiples of the block's scale, 2 m + 1 with m in [0, 8), for the scales of its sub-blocks; returns the block's. */
export function roundTernaryScales(subBlocks: number, multiples: Uint8Array): number {
  const { scales } = ternaryFits;
  let largest = 0;
  for (let i = 0; i < subBlocks; i++) {
    if (Number.isNaN(scales[i])) return Number.NaN;
    largest = Math.max(largest, scales[i]!);
  }
  if (largest === 0) return 0;
  const d = f(largest / 15);
  const inverse = f(1 / d);
  for (let i = 0; i < subBlocks; i++) {
    multiples[i] = clamp(nearestInt(f(0.5 * f(f(inverse * scales[i]!) - 1))), 0, 7);
  }
  return d;
}
