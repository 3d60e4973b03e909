// The shared quants of iq4_nl and iq4_xs: 4-bit quants for 16 unevenly spaced values, denser around zero, and the
// search for the scale of 32 values.

import type { BlockCodebook } from "./block.ts";
import { largestMagnitude } from "./float32-math.ts";
import { zeroBlock } from "./scale-search.ts";

const f = Math.fround;

/** The value of each quant, in units of the scale. */
export const nonlinearValues: Int8Array = Int8Array.of(
  -127,
  -104,
  -83,
  -65,
  -49,
  -35,
  -22,
  -10,
  1,
  13,
  25,
  38,
  53,
  69,
  89,
  113,
);

export const nonlinearCodebook: BlockCodebook = { size: 1, points: () => nonlinearValues };

/** Scales tried to each side of the one that maps the largest value to -127. */
const ladderSteps = 7;

/** The quant nearest to `value` (a float32 in units of the scale); the upper one if both are as near. */
export function nearestNonlinear(value: number): number {
  if (value <= -127) return 0;
  if (value >= 113) return 15;
  let below = 0;
  let above = 15;
  while (above - below > 1) {
    const middle = (below + above) >> 1;
    if (value < nonlinearValues[middle]!) above = middle;
    else below = middle;
  }
  const low = nonlinearValues[above - 1]!;
  const high = nonlinearValues[above]!;
  return f(value - low) < f(high - value) ? above - 1 : above;
}

/** The scale with the least weighted error for 32 values; 0 if they are all (almost) zero. */
export function fitNonlinear(
  x: Float32Array,
  at: number,
  weights: Float32Array,
  weightsAt: number,
): number {
  const largest = largestMagnitude(x, at, 32);
  if (Math.abs(largest) < zeroBlock) return 0;
  let scale = 0;
  let best = 0;
  for (let order = 0; order <= 2 * ladderSteps + 1; order++) {
    const opening = order === 0; // maps the largest value to +127, and is taken for any error
    const inverse = opening
      ? f(1 / f(-largest / -127))
      : f((order - 1 - ladderSteps - 127) / largest);
    let sumQX = 0;
    let sumQQ = 0;
    for (let i = 0; i < 32; i++) {
      const value = x[at + i]!;
      const q = nonlinearValues[nearestNonlinear(f(inverse * value))]!;
      const weighted = f(weights[weightsAt + i]! * q);
      sumQX = f(sumQX + f(weighted * value));
      sumQQ = f(sumQQ + f(weighted * q));
    }
    if (opening || (sumQQ > 0 && f(sumQX * sumQX) > f(best * sumQQ))) {
      scale = sumQQ > 0 ? f(sumQX / sumQQ) : 0;
      best = f(scale * sumQX);
    }
  }
  return scale;
}

/**
 * Maps the largest of 32 values to -127, sets their quants, and returns the scale with the least error for these quants,
 * weighted by the values' squares.
 */
export function fitNonlinearOnce(x: Float32Array, at: number, quants: Uint8Array): number {
  const largest = largestMagnitude(x, at, 32);
  if (Math.abs(largest) < zeroBlock) {
    quants.fill(0);
    return 0;
  }
  const inverse = f(1 / f(largest / -127));
  let sumQX = 0;
  let sumQQ = 0;
  for (let i = 0; i < 32; i++) {
    const value = x[at + i]!;
    const quant = nearestNonlinear(f(inverse * value));
    quants[i] = quant;
    const q = nonlinearValues[quant]!;
    const weighted = f(f(value * value) * q);
    sumQX = f(sumQX + f(weighted * value));
    sumQQ = f(sumQQ + f(weighted * q));
  }
  return sumQQ > 0 ? f(sumQX / sumQQ) : 0;
}
