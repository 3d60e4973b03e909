// The searches of the quantizers: which scale (and min) fits a sub-block of values best.
//
// Each tries a ladder of scales around the obvious one and keeps the one with the least weighted error. Every rounding
// shows in the result, so the order of the float32 operations is that of ggml (make_qx_quants, make_q3_quants,
// make_qkx2_quants and make_qp_quants). Results go to the caller's arrays; nothing is allocated. block-search.ts runs
// them over many sub-blocks.

import { clamp, largestMagnitude, nearestInt } from "./float32-math.ts";

const f = Math.fround;

/** Below this a sub-block counts as all zero. */
export const zeroBlock: number = f(1e-15);

const tenth = f(0.1);

/** Results of a search for many sub-blocks. */
export interface BlockFits {
  readonly scales: Float32Array;
  /** As positive offsets: value ~ scale * quant - min. Only of affine searches. */
  readonly mins: Float32Array;
  /** Inverse scales, from which affineQuantsOf and symmetricQuantsOf make the quants. */
  readonly inverses: Float32Array;
  readonly bases: Float32Array;
}

export function newFits(subBlocks: number): BlockFits {
  const floats = () => new Float32Array(subBlocks);
  return { scales: floats(), mins: floats(), inverses: floats(), bases: floats() };
}

/**
 * value ~ scale * (quant - half), quant in [0, 2 * half). Weights are the squares of the values where none are given.
 * The result is at `index` of `fits`.
 */
export function fitSymmetric(
  x: Float32Array,
  at: number,
  count: number,
  half: number,
  weights: Float32Array | undefined,
  weightsAt: number,
  fits: BlockFits,
  index: number,
): void {
  const largest = largestMagnitude(x, at, count);
  fits.scales[index] = 0;
  fits.inverses[index] = 0;
  if (Math.abs(largest) < zeroBlock) return;
  let best = 0;
  // Step 0 is the scale that maps the largest value to -half, and is taken for any error.
  for (let order = 0; order < symmetricSteps; order++) {
    const inverse = f(-f(half + f(tenth * symmetricStep(order))) / largest);
    let sumLX = 0;
    let sumLL = 0;
    for (let i = 0; i < count; i++) {
      const value = x[at + i]!;
      const quant = clamp(nearestInt(f(inverse * value)), -half, half - 1);
      const weight = weights === undefined ? f(value * value) : weights[weightsAt + i]!;
      sumLX = f(sumLX + f(f(weight * value) * quant));
      sumLL = f(sumLL + f(f(weight * quant) * quant));
    }
    if (order > 0 && !(sumLL > 0 && f(sumLX * sumLX) > f(best * sumLL))) continue;
    const scale = sumLL === 0 ? 0 : f(sumLX / sumLL);
    best = f(scale * sumLX);
    fits.scales[index] = scale;
    fits.inverses[index] = inverse;
  }
}

/** Inverse scales that fitSymmetric tries. symmetricStep() is the offset of each in tenths of a quant: 0, then -9 to 9. */
export const symmetricSteps = 19;

export function symmetricStep(order: number): number {
  return order === 0 ? 0 : order <= 9 ? order - 10 : order - 9;
}

/** The quants of the scale that fitSymmetric found. */
export function symmetricQuantsOf(
  fits: BlockFits,
  index: number,
  x: Float32Array,
  at: number,
  count: number,
  half: number,
  quants: Int8Array,
  quantsAt: number,
): void {
  const inverse = fits.inverses[index]!;
  for (let i = 0; i < count; i++) {
    // The quants of a sub-block of zeros are 0, not `half`, as in ggml: its scale is 0 anyway.
    const quant = clamp(nearestInt(f(inverse * x[at + i]!)), -half, half - 1);
    quants[quantsAt + i] = inverse === 0 ? 0 : half + quant;
  }
}

/** As fitSymmetric without weights, but improves quant by quant instead of trying a ladder of scales. */
export function fitSymmetricGreedy(
  x: Float32Array,
  at: number,
  count: number,
  half: number,
  quants: Int8Array,
  quantsAt: number,
): number {
  const largest = largestMagnitude(x, at, count);
  if (Math.abs(largest) < zeroBlock) {
    quants.fill(0, quantsAt, quantsAt + count);
    return 0;
  }
  const inverse = f(-half / largest);
  let sumLX = 0;
  let sumLL = 0;
  for (let i = 0; i < count; i++) {
    const value = x[at + i]!;
    const quant = clamp(nearestInt(f(inverse * value)), -half, half - 1);
    quants[quantsAt + i] = quant;
    const weight = f(value * value);
    sumLX = f(sumLX + f(f(weight * value) * quant));
    sumLL = f(sumLL + f(f(weight * quant) * quant));
  }
  for (let round = 0; round < 5; round++) {
    let changed = false;
    for (let i = 0; i < count; i++) {
      const value = x[at + i]!;
      const weight = f(value * value);
      const quant = quants[quantsAt + i]!;
      let otherLX = f(sumLX - f(f(weight * value) * quant));
      if (!(otherLX > 0)) continue;
      let otherLL = f(sumLL - f(f(weight * quant) * quant));
      const better = clamp(nearestInt(f(f(value * otherLL) / otherLX)), -half, half - 1);
      if (better === quant) continue;
      otherLX = f(otherLX + f(f(weight * value) * better));
      otherLL = f(otherLL + f(f(weight * better) * better));
      if (otherLL > 0 && f(f(otherLX * otherLX) * sumLL) > f(f(sumLX * sumLX) * otherLL)) {
        quants[quantsAt + i] = better;
        sumLX = otherLX;
        sumLL = otherLL;
        changed = true;
      }
    }
    if (!changed) break;
  }
  for (let i = 0; i < count; i++) quants[quantsAt + i] = quants[quantsAt + i]! + half;
  return sumLL > 0 ? f(sumLX / sumLL) : 0;
}

/** The ladder of fitAffine: inverse scales (first + i * delta + maxQuant) / range for i = 0..steps. */
export interface AffineLadder {
  readonly maxQuant: number;
  readonly first: number;
  readonly delta: number;
  readonly steps: number;
  /** Whether an error counts by its magnitude instead of its square. */
  readonly absolute: boolean;
}

const trial = new Uint8Array(32);
const solved = new Float32Array(2); // scale, min: the result of solveForTrial

/**
 * value ~ scale * quant - min, quant in [0, maxQuant], min >= 0. At most 32 values. The result is at `index` of
 * `fits`.
 */
export function fitAffine(
  x: Float32Array,
  at: number,
  count: number,
  weights: Float32Array,
  weightsAt: number,
  ladder: AffineLadder,
  fits: BlockFits,
  index: number,
): void {
  let min = x[at]!;
  let max = min;
  let sumW = weights[weightsAt]!;
  let sumX = f(sumW * min);
  for (let i = 1; i < count; i++) {
    const value = x[at + i]!;
    const weight = weights[weightsAt + i]!;
    if (value < min) min = value;
    if (value > max) max = value;
    sumW = f(sumW + weight);
    sumX = f(sumX + f(weight * value));
  }
  if (min > 0) min = 0;
  let base = min;
  let inverse = max === min ? 0 : f(ladder.maxQuant / f(max - min));
  let scale = max === min ? 0 : f(1 / inverse);
  if (max !== min) {
    const { maxQuant, first, delta, steps, absolute } = ladder;
    roundQuants(x, at, count, inverse, min, maxQuant, trial, 0);
    let bestLoss = affineLoss(x, at, count, weights, weightsAt, scale, min, absolute);
    for (let step = 0; step <= steps; step++) {
      // The range is that of the best fit so far, whose min moves.
      const tried = f(f(f(first + f(delta * step)) + maxQuant) / f(max - min));
      roundQuants(x, at, count, tried, min, maxQuant, trial, 0);
      if (!solveForTrial(x, at, count, weights, weightsAt, sumW, sumX)) continue;
      const newScale = solved[0]!;
      const newMin = solved[1]!;
      const loss = affineLoss(x, at, count, weights, weightsAt, newScale, newMin, absolute);
      if (!(loss < bestLoss)) continue;
      bestLoss = loss;
      inverse = tried;
      base = min;
      scale = newScale;
      min = newMin;
    }
  }
  fits.scales[index] = scale;
  fits.mins[index] = -min;
  fits.inverses[index] = inverse;
  fits.bases[index] = base;
}

/** The quants of the scale and the min that fitAffine found. */
export function affineQuantsOf(
  fits: BlockFits,
  index: number,
  x: Float32Array,
  at: number,
  count: number,
  maxQuant: number,
  quants: Uint8Array,
  quantsAt: number,
): void {
  const inverse = fits.inverses[index]!;
  roundQuants(x, at, count, inverse, fits.bases[index]!, maxQuant, quants, quantsAt);
}

/** Weighted least squares for scale and min with the quants of `trial` held; false if they do not determine both. */
function solveForTrial(
  x: Float32Array,
  at: number,
  count: number,
  weights: Float32Array,
  weightsAt: number,
  sumW: number,
  sumX: number,
): boolean {
  let sumL = 0;
  let sumLL = 0;
  let sumXL = 0;
  for (let i = 0; i < count; i++) {
    const quant = trial[i]!;
    const weighted = f(weights[weightsAt + i]! * quant);
    sumL = f(sumL + weighted);
    sumLL = f(sumLL + f(weighted * quant));
    sumXL = f(sumXL + f(weighted * x[at + i]!));
  }
  const determinant = f(f(sumW * sumLL) - f(sumL * sumL));
  if (!(determinant > 0)) return false;
  solved[0] = f(f(sumW * sumXL) - f(sumX * sumL)) / determinant;
  solved[1] = f(f(sumLL * sumX) - f(sumL * sumXL)) / determinant;
  if (solved[1]! > 0) {
    solved[1] = 0; // a min above zero cannot be stored: fit the scale alone
    solved[0] = sumXL / sumLL;
  }
  return true;
}

function roundQuants(
  x: Float32Array,
  at: number,
  count: number,
  inverse: number,
  min: number,
  maxQuant: number,
  quants: Uint8Array,
  quantsAt: number,
): void {
  for (let i = 0; i < count; i++) {
    quants[quantsAt + i] = clamp(nearestInt(f(inverse * f(x[at + i]! - min))), 0, maxQuant);
  }
}

/** The weighted error of the quants of `trial`. */
function affineLoss(
  x: Float32Array,
  at: number,
  count: number,
  weights: Float32Array,
  weightsAt: number,
  scale: number,
  min: number,
  absolute: boolean,
): number {
  let loss = 0;
  for (let i = 0; i < count; i++) {
    const error = f(f(f(scale * trial[i]!) + min) - x[at + i]!);
    const cost = absolute ? Math.abs(error) : f(error * error);
    loss = f(loss + f(weights[weightsAt + i]! * cost));
  }
  return loss;
}

/**
 * value ~ scale * quant for values >= 0 (the scales or mins of a super-block), quant in [0, maxQuant]. Returns the
 * scale. Quants wrap to a byte as in C, should a value be negative after all.
 */
export function fitPositive(
  x: Float32Array, // [count]
  count: number,
  maxQuant: number,
  quants: Uint8Array,
  weights: Float32Array, // [count]
): number {
  let max = 0;
  for (let i = 0; i < count; i++) if (x[i]! > max) max = x[i]!;
  if (max < zeroBlock) {
    quants.fill(0, 0, count);
    return 0;
  }
  const inverse = bestPositiveInverse(x, count, maxQuant, quants, weights, max);
  let sumLX = 0;
  let sumLL = 0;
  for (let i = 0; i < count; i++) {
    const value = x[i]!;
    const quant = Math.min(maxQuant, nearestInt(f(inverse * value)));
    quants[i] = quant;
    sumLX = f(sumLX + f(f(weights[i]! * value) * quant));
    sumLL = f(sumLL + f(f(weights[i]! * quant) * quant));
  }
  for (let round = 0; round < 5; round++) {
    let changed = false;
    for (let i = 0; i < count; i++) {
      const value = x[i]!;
      const weight = weights[i]!;
      const quant = quants[i]!;
      let otherLX = f(sumLX - f(f(weight * value) * quant));
      let otherLL = f(sumLL - f(f(weight * quant) * quant));
      if (!(otherLX > 0 && otherLL > 0)) continue;
      const better = Math.min(maxQuant, nearestInt(f(f(value * otherLL) / otherLX)));
      if (better === quant) continue;
      otherLX = f(otherLX + f(f(weight * value) * better));
      otherLL = f(otherLL + f(f(weight * better) * better));
      if (f(f(otherLX * otherLX) * sumLL) > f(f(sumLX * sumLX) * otherLL)) {
        quants[i] = better;
        sumLX = otherLX;
        sumLL = otherLL;
        changed = true;
      }
    }
    if (!changed) break;
  }
  return sumLL > 0 ? f(sumLX / sumLL) : 0;
}

function bestPositiveInverse(
  x: Float32Array,
  count: number,
  maxQuant: number,
  quants: Uint8Array,
  weights: Float32Array,
  max: number,
): number {
  let best = f(maxQuant / max);
  const scale = f(1 / best);
  let bestLoss = 0;
  for (let i = 0; i < count; i++) {
    quants[i] = nearestInt(f(best * x[i]!)); // a byte from here on, unlike on the ladder below
    const error = f(x[i]! - f(scale * quants[i]!));
    bestLoss = f(bestLoss + f(f(weights[i]! * error) * error));
  }
  for (let step = -4; step <= 4; step++) {
    if (step === 0) continue;
    const tried = f(f(f(tenth * step) + maxQuant) / max);
    const triedScale = f(1 / tried);
    let loss = 0;
    for (let i = 0; i < count; i++) {
      const quant = Math.min(maxQuant, nearestInt(f(tried * x[i]!)));
      const error = f(x[i]! - f(triedScale * quant));
      loss = f(loss + f(f(weights[i]! * error) * error));
    }
    if (loss < bestLoss) {
      bestLoss = loss;
      best = tried;
    }
  }
  return best;
}
