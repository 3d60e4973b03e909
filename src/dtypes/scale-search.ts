// The searches behind the quantizers: which scale (and minimum) makes the rounded levels fit a group of values best.
//
// Each tries a ladder of scales around the obvious one and keeps what loses least under the given weights. They are
// heuristics whose every rounding shows in the result: the order of the float32 steps here is part of the file format's
// de facto definition (ggml's make_qx_quants, make_q3_quants, make_qkx2_quants and make_qp_quants). Results go to the
// caller's arrays; nothing is allocated. group-search.ts runs them over many groups, and may be replaced there.

import { clamp, largestMagnitude, nearestInt } from "./float32-steps.ts";

const f = Math.fround;

/** Below this a group counts as all zero. */
export const zeroGroup: number = f(1e-15);

const tenth = f(0.1);

/** What a search found for each of many groups. */
export interface GroupFits {
  readonly scales: Float32Array;
  /** As positive offsets; of searches that have one. */
  readonly minimums: Float32Array;
  /** What the levels follow from: see affineLevelsOf and symmetricLevelsOf. */
  readonly inverses: Float32Array;
  readonly bases: Float32Array;
}

export function newFits(groups: number): GroupFits {
  const floats = () => new Float32Array(groups);
  return { scales: floats(), minimums: floats(), inverses: floats(), bases: floats() };
}

/**
 * value ~ scale * (level - half), level in [0, 2 * half). Weights are the squares of the values where none are given.
 * The result is at `index` of `fits`.
 */
export function fitSymmetric(
  x: Float32Array,
  at: number,
  count: number,
  half: number,
  weights: Float32Array | undefined,
  weightsAt: number,
  fits: GroupFits,
  index: number,
): void {
  const largest = largestMagnitude(x, at, count);
  fits.scales[index] = 0;
  fits.inverses[index] = 0;
  if (Math.abs(largest) < zeroGroup) return;
  let best = 0;
  // Step 0 is the scale that maps the largest value to -half; it is taken whatever it loses.
  for (let order = 0; order < symmetricSteps; order++) {
    const inverse = f(-f(half + f(tenth * symmetricStep(order))) / largest);
    let sumLX = 0;
    let sumLL = 0;
    for (let i = 0; i < count; i++) {
      const value = x[at + i]!;
      const level = clamp(nearestInt(f(inverse * value)), -half, half - 1);
      const weight = weights === undefined ? f(value * value) : weights[weightsAt + i]!;
      sumLX = f(sumLX + f(f(weight * value) * level));
      sumLL = f(sumLL + f(f(weight * level) * level));
    }
    if (order > 0 && !(sumLL > 0 && f(sumLX * sumLX) > f(best * sumLL))) continue;
    const scale = sumLL === 0 ? 0 : f(sumLX / sumLL);
    best = f(scale * sumLX);
    fits.scales[index] = scale;
    fits.inverses[index] = inverse;
  }
}

/** Inverse scales that fitSymmetric tries, and which tenth of a level each is off: 0, then -9 to 9 without it. */
export const symmetricSteps = 19;

export function symmetricStep(order: number): number {
  return order === 0 ? 0 : order <= 9 ? order - 10 : order - 9;
}

/** The levels of the scale that fitSymmetric found. */
export function symmetricLevelsOf(
  fits: GroupFits,
  index: number,
  x: Float32Array,
  at: number,
  count: number,
  half: number,
  levels: Int8Array,
  levelsAt: number,
): void {
  const inverse = fits.inverses[index]!;
  for (let i = 0; i < count; i++) {
    // A group of zeros has level 0, not the level that stands for 0: nobody sees it, its scale is 0.
    const level = clamp(nearestInt(f(inverse * x[at + i]!)), -half, half - 1);
    levels[levelsAt + i] = inverse === 0 ? 0 : half + level;
  }
}

/** As fitSymmetric without weights, but improves level by level instead of trying a ladder of scales. */
export function fitSymmetricGreedy(
  x: Float32Array,
  at: number,
  count: number,
  half: number,
  levels: Int8Array,
  levelsAt: number,
): number {
  const largest = largestMagnitude(x, at, count);
  if (Math.abs(largest) < zeroGroup) {
    levels.fill(0, levelsAt, levelsAt + count);
    return 0;
  }
  const inverse = f(-half / largest);
  let sumLX = 0;
  let sumLL = 0;
  for (let i = 0; i < count; i++) {
    const value = x[at + i]!;
    const level = clamp(nearestInt(f(inverse * value)), -half, half - 1);
    levels[levelsAt + i] = level;
    const weight = f(value * value);
    sumLX = f(sumLX + f(f(weight * value) * level));
    sumLL = f(sumLL + f(f(weight * level) * level));
  }
  for (let round = 0; round < 5; round++) {
    let changed = false;
    for (let i = 0; i < count; i++) {
      const value = x[at + i]!;
      const weight = f(value * value);
      const level = levels[levelsAt + i]!;
      let otherLX = f(sumLX - f(f(weight * value) * level));
      if (!(otherLX > 0)) continue;
      let otherLL = f(sumLL - f(f(weight * level) * level));
      const better = clamp(nearestInt(f(f(value * otherLL) / otherLX)), -half, half - 1);
      if (better === level) continue;
      otherLX = f(otherLX + f(f(weight * value) * better));
      otherLL = f(otherLL + f(f(weight * better) * better));
      if (otherLL > 0 && f(f(otherLX * otherLX) * sumLL) > f(f(sumLX * sumLX) * otherLL)) {
        levels[levelsAt + i] = better;
        sumLX = otherLX;
        sumLL = otherLL;
        changed = true;
      }
    }
    if (!changed) break;
  }
  for (let i = 0; i < count; i++) levels[levelsAt + i] = levels[levelsAt + i]! + half;
  return sumLL > 0 ? f(sumLX / sumLL) : 0;
}

/** The ladder of fitAffine: inverse scales (first + i * delta + maxLevel) / range for i = 0..steps. */
export interface AffineLadder {
  readonly maxLevel: number;
  readonly first: number;
  readonly delta: number;
  readonly steps: number;
  /** Whether an error counts by its magnitude instead of its square. */
  readonly absolute: boolean;
}

const trial = new Uint8Array(32);
const solved = new Float32Array(2); // scale, min: the result of solveForTrial

/**
 * value ~ scale * level - minimum, level in [0, maxLevel], minimum >= 0. At most 32 values. The result is at `index` of
 * `fits`.
 */
export function fitAffine(
  x: Float32Array,
  at: number,
  count: number,
  weights: Float32Array,
  weightsAt: number,
  ladder: AffineLadder,
  fits: GroupFits,
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
  let inverse = max === min ? 0 : f(ladder.maxLevel / f(max - min));
  let scale = max === min ? 0 : f(1 / inverse);
  if (max !== min) {
    const { maxLevel, first, delta, steps, absolute } = ladder;
    roundLevels(x, at, count, inverse, min, maxLevel, trial, 0);
    let bestLoss = affineLoss(x, at, count, weights, weightsAt, scale, min, absolute);
    for (let step = 0; step <= steps; step++) {
      // The range to scale by is that of the best fit so far: its minimum moves.
      const tried = f(f(f(first + f(delta * step)) + maxLevel) / f(max - min));
      roundLevels(x, at, count, tried, min, maxLevel, trial, 0);
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
  fits.minimums[index] = -min;
  fits.inverses[index] = inverse;
  fits.bases[index] = base;
}

/** The levels of the scale and the minimum that fitAffine found. */
export function affineLevelsOf(
  fits: GroupFits,
  index: number,
  x: Float32Array,
  at: number,
  count: number,
  maxLevel: number,
  levels: Uint8Array,
  levelsAt: number,
): void {
  const inverse = fits.inverses[index]!;
  roundLevels(x, at, count, inverse, fits.bases[index]!, maxLevel, levels, levelsAt);
}

/** Weighted least squares for scale and minimum with the levels of `trial` held; false if they do not determine both. */
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
    const level = trial[i]!;
    const weighted = f(weights[weightsAt + i]! * level);
    sumL = f(sumL + weighted);
    sumLL = f(sumLL + f(weighted * level));
    sumXL = f(sumXL + f(weighted * x[at + i]!));
  }
  const determinant = f(f(sumW * sumLL) - f(sumL * sumL));
  if (!(determinant > 0)) return false;
  solved[0] = f(f(sumW * sumXL) - f(sumX * sumL)) / determinant;
  solved[1] = f(f(sumLL * sumX) - f(sumL * sumXL)) / determinant;
  if (solved[1]! > 0) {
    solved[1] = 0; // a minimum above zero is not representable: fit the scale alone
    solved[0] = sumXL / sumLL;
  }
  return true;
}

function roundLevels(
  x: Float32Array,
  at: number,
  count: number,
  inverse: number,
  min: number,
  maxLevel: number,
  levels: Uint8Array,
  levelsAt: number,
): void {
  for (let i = 0; i < count; i++) {
    levels[levelsAt + i] = clamp(nearestInt(f(inverse * f(x[at + i]! - min))), 0, maxLevel);
  }
}

/** What the levels of `trial` lose. */
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
 * value ~ scale * level for values >= 0 (the scales or minimums of a super-block), level in [0, maxLevel]. Returns the
 * scale. Levels wrap to a byte as in C, should a value be negative after all.
 */
export function fitPositive(
  x: Float32Array, // [count]
  count: number,
  maxLevel: number,
  levels: Uint8Array,
  weights: Float32Array, // [count]
): number {
  let max = 0;
  for (let i = 0; i < count; i++) if (x[i]! > max) max = x[i]!;
  if (max < zeroGroup) {
    levels.fill(0, 0, count);
    return 0;
  }
  const inverse = bestPositiveInverse(x, count, maxLevel, levels, weights, max);
  let sumLX = 0;
  let sumLL = 0;
  for (let i = 0; i < count; i++) {
    const value = x[i]!;
    const level = Math.min(maxLevel, nearestInt(f(inverse * value)));
    levels[i] = level;
    sumLX = f(sumLX + f(f(weights[i]! * value) * level));
    sumLL = f(sumLL + f(f(weights[i]! * level) * level));
  }
  for (let round = 0; round < 5; round++) {
    let changed = false;
    for (let i = 0; i < count; i++) {
      const value = x[i]!;
      const weight = weights[i]!;
      const level = levels[i]!;
      let otherLX = f(sumLX - f(f(weight * value) * level));
      let otherLL = f(sumLL - f(f(weight * level) * level));
      if (!(otherLX > 0 && otherLL > 0)) continue;
      const better = Math.min(maxLevel, nearestInt(f(f(value * otherLL) / otherLX)));
      if (better === level) continue;
      otherLX = f(otherLX + f(f(weight * value) * better));
      otherLL = f(otherLL + f(f(weight * better) * better));
      if (f(f(otherLX * otherLX) * sumLL) > f(f(sumLX * sumLX) * otherLL)) {
        levels[i] = better;
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
  maxLevel: number,
  levels: Uint8Array,
  weights: Float32Array,
  max: number,
): number {
  let best = f(maxLevel / max);
  const scale = f(1 / best);
  let bestLoss = 0;
  for (let i = 0; i < count; i++) {
    levels[i] = nearestInt(f(best * x[i]!)); // a byte from here on, unlike on the ladder below
    const error = f(x[i]! - f(scale * levels[i]!));
    bestLoss = f(bestLoss + f(f(weights[i]! * error) * error));
  }
  for (let step = -4; step <= 4; step++) {
    if (step === 0) continue;
    const tried = f(f(f(tenth * step) + maxLevel) / max);
    const triedScale = f(1 / tried);
    let loss = 0;
    for (let i = 0; i < count; i++) {
      const level = Math.min(maxLevel, nearestInt(f(tried * x[i]!)));
      const error = f(x[i]! - f(triedScale * level));
      loss = f(loss + f(f(weights[i]! * error) * error));
    }
    if (loss < bestLoss) {
      bestLoss = loss;
      best = tried;
    }
  }
  return best;
}
