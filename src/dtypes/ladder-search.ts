// The inner loop of the quantizers of the IQ2 and IQ3 types: for each scale of a ladder, the codebook points nearest to a
// sub-block's values, and the sums that decide which scale is best. A replacement passed to a quantizer (block-search.ts) may
// be faster, but must find the same bits.

import { type CodebookNeighbours, digitBits } from "./codebook-neighbours.ts";
import { clamp, nearestInt } from "./float32-math.ts";

const f = Math.fround;

/** The most scales of a ladder, and the most tuples of a sub-block. A tuple is 4 or 8 values that share a point. */
export const ladderScales = 32;
export const subBlockTuples = 8;

/** A sub-block of 16 or 32 values without their signs. */
export interface LadderInput {
  readonly values: Float32Array;
  readonly weights: Float32Array;
  /** Square roots of the weights. */
  readonly roots: Float32Array;
  /** Weight times value. */
  readonly products: Float32Array;
}

export interface LadderFits {
  /** Sums of weight * value * q, and of weight * q * q, for each scale. */
  readonly sumsQX: Float32Array;
  readonly sumsQQ: Float32Array;
  /** [scales, tuples]: the number of a point, or -1 where no distance is finite. */
  readonly points: Int16Array;
  /** [scales, tuples]: 1 where a point has just the digits that the values round to. */
  readonly isRounding: Uint8Array;
}

/** `inverses` and `scales` (one is 1 / the other) are the ladder; `size` is the number of values. */
export type LadderSearch = (
  neighbours: CodebookNeighbours,
  input: LadderInput,
  size: 16 | 32,
  inverses: Float32Array,
  scales: Float32Array,
  count: number,
  fits: LadderFits,
) => void;

export function newLadderFits(): LadderFits {
  return {
    sumsQX: new Float32Array(ladderScales),
    sumsQQ: new Float32Array(ladderScales),
    points: new Int16Array(ladderScales * subBlockTuples),
    isRounding: new Uint8Array(ladderScales * subBlockTuples),
  };
}

export const plainLadderSearch: LadderSearch = (
  neighbours,
  input,
  size,
  inverses,
  scales,
  count,
  fits,
) => {
  const { width, digits, pointOf } = neighbours;
  for (let step = 0; step < count; step++) {
    fits.sumsQX[step] = 0;
    fits.sumsQQ[step] = 0;
    for (let tuple = 0; tuple < size / width; tuple++) {
      const key = keyOf(neighbours, input.values, width * tuple, inverses[step]!);
      const at = subBlockTuples * step + tuple;
      let point = pointOf[key]!;
      fits.isRounding[at] = point < 0 ? 0 : 1;
      if (point < 0) point = nearest(neighbours, -1 - point, input, width * tuple, scales[step]!);
      fits.points[at] = point;
      addPoint(digits, width, Math.max(point, 0), input, tuple, fits, step);
    }
  }
};

/** The digits that values round to. */
function keyOf(
  neighbours: CodebookNeighbours,
  values: Float32Array,
  at: number,
  inverse: number,
): number {
  const { width, digitValues } = neighbours;
  const bits = digitBits(neighbours);
  let key = 0;
  for (let i = 0; i < width; i++) {
    const digit = nearestInt(f(0.5 * f(f(inverse * values[at + i]!) - 1)));
    key |= clamp(digit, 0, digitValues - 1) << (bits * i);
  }
  return key;
}

/** Adds a point's terms to the sums of one scale. */
export function addPoint(
  digits: Uint8Array,
  width: number,
  point: number,
  { weights, products }: LadderInput,
  tuple: number,
  { sumsQX, sumsQQ }: Pick<LadderFits, "sumsQX" | "sumsQQ">,
  step: number,
): void {
  let sumQX = sumsQX[step]!;
  let sumQQ = sumsQQ[step]!;
  for (let i = 0; i < width; i++) {
    const at = width * tuple + i;
    const q = 2 * digits[width * point + i]! + 1;
    sumQX = f(sumQX + f(products[at]! * q));
    sumQQ = f(sumQQ + f(f(weights[at]! * q) * q));
  }
  sumsQX[step] = sumQX;
  sumsQQ[step] = sumQQ;
}

/** No sum that is found is as large. */
export const largestFloat: number = f(3.4028234663852886e38);

/** The best point of a list. A sum that is too large already cannot become the smallest: its terms are not negative. */
function nearest(
  { width, digits, lists }: CodebookNeighbours,
  list: number,
  { values, roots }: LadderInput,
  at: number,
  scale: number,
): number {
  let found = -1;
  let best = largestFloat;
  const end = list + 1 + lists[list]!;
  for (let entry = list + 1; entry < end; entry++) {
    const point = width * lists[entry]!;
    let sum = 0;
    for (let i = 0; i < width && sum < best; i++) {
      const error = f(f(scale * (2 * digits[point + i]! + 1)) - values[at + i]!);
      sum = f(sum + f(f(roots[at + i]! * error) * error));
    }
    if (!(sum < best)) continue;
    best = sum;
    found = lists[entry]!;
  }
  return found;
}
