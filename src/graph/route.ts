// Chooses the experts of a token and their weights: one row of the op `route`, in plain TypeScript. The reference and the
// CPU backend both call it, since a few hundred scores a token are too few for a kernel.
//
// Sums and quotients are rounded to float32 where ggml has a float. A NaN is never the largest score, and chosen experts are
// always distinct: a damaged router gives NaN weights, but no address outside a weight.

import type { ExpertGroups, Routing } from "./graph.ts";

const f32 = Math.fround;

/** The smallest divisor of weights that are normalised: the smallest normal half float, as in ggml. */
const SMALLEST_SUM = 6.103515625e-5;

/** Floats of scratch memory that routeRow() needs: scores for the weights, scores for the choice, and those of groups. */
export function routeScratchSize(experts: number): number {
  return 3 * experts;
}

/**
 * Routes one token: logits[at ...][experts] -> out[outAt ...][2 * used], ids before weights. `bias` is added to the scores
 * for choosing only; `scales` are factors on the weights.
 */
export function routeRow(
  { used, gating, normalise, scale, groups, sharing = 1 }: Routing,
  experts: number,
  logits: Float32Array,
  at: number,
  bias: Float32Array | undefined,
  out: Float32Array,
  outAt: number,
  scratch: Float32Array,
  scales?: Float32Array,
): void {
  if (gating === "all") {
    for (let e = 0; e < experts; e++) out[outAt + e] = e;
    out.fill(1, outAt + experts, outAt + 2 * experts);
    return;
  }
  for (let e = 0; e < experts; e++) scratch[e] = logits[at + e]!;
  if (gating === "softmax") softmaxInPlace(scratch, 0, experts);
  else if (gating === "sigmoid") {
    for (let e = 0; e < experts; e++) scratch[e] = f32(1 / f32(1 + f32(Math.exp(-scratch[e]!))));
  }
  for (let e = 0; e < experts; e++) scratch[experts + e] = scratch[e]! + (bias ? bias[e]! : 0);
  if (groups) leaveGroups(groups, experts, scratch);
  const weightAt = outAt + used;
  for (let slot = 0; slot < used; slot++) {
    const best = largest(scratch, experts, out, outAt, slot);
    out[outAt + slot] = best;
    out[weightAt + slot] = scratch[best]!;
  }
  for (let slot = 0; slot < used && sharing > 1; slot++) {
    const matrix = Math.floor(out[outAt + slot]! / sharing);
    out[outAt + slot] = matrix;
    out[weightAt + slot] = scratch[matrix]!;
  }
  if (gating === "softmax_chosen") softmaxInPlace(out, weightAt, used);
  if (normalise) {
    let sum = 0;
    for (let slot = 0; slot < used; slot++) sum += out[weightAt + slot]!;
    const divisor = Math.max(f32(sum), SMALLEST_SUM);
    for (let slot = 0; slot < used; slot++) out[weightAt + slot]! /= divisor;
  }
  for (let slot = 0; slot < used && scale !== 1; slot++) out[weightAt + slot]! *= scale;
  for (let slot = 0; slot < used && scales; slot++) {
    out[weightAt + slot]! *= scales[out[outAt + slot]!]!;
  }
}

/** Gives the experts outside of the best groups a score for the choice that is below all others. */
function leaveGroups({ count, used }: ExpertGroups, experts: number, scratch: Float32Array): void {
  const size = experts / count;
  const sums = 2 * experts; // where the groups' scores lie
  for (let group = 0; group < count; group++) {
    scratch[sums + group] = twoLargest(scratch, experts + group * size, size);
  }
  for (let group = 0; group < count; group++) {
    if (groupRank(scratch, sums, count, group) < used) continue;
    const first = experts + group * size;
    scratch.fill(Number.NEGATIVE_INFINITY, first, first + size);
  }
}

/** Groups with a larger sum than this one, or with the same and a smaller number. A NaN is the smallest. */
function groupRank(scratch: Float32Array, sums: number, count: number, group: number): number {
  const own = scratch[sums + group]!;
  let rank = 0;
  for (let other = 0; other < count; other++) {
    const sum = scratch[sums + other]!;
    const isSame = sum === own || (Number.isNaN(sum) && Number.isNaN(own));
    if (sum > own || (Number.isNaN(own) && !Number.isNaN(sum)) || (isSame && other < group)) rank++;
  }
  return rank;
}

/** The sum of the two largest of `size` scores, of which NaN is the smallest. */
function twoLargest(scratch: Float32Array, at: number, size: number): number {
  let [first, second] = [Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let e = 0; e < size; e++) {
    const score = scratch[at + e]!;
    if (score > first) [first, second] = [score, first];
    else if (score > second) second = score;
  }
  return first + second;
}

/** The expert with the largest score for the choice that is not among the first `slots` ids of out. */
function largest(
  scratch: Float32Array,
  experts: number,
  out: Float32Array,
  outAt: number,
  slots: number,
): number {
  let best = -1;
  let score = Number.NEGATIVE_INFINITY;
  for (let e = 0; e < experts; e++) {
    const own = scratch[experts + e]!;
    const isBetter = own > score || best < 0;
    if (isBetter && !isChosen(e, out, outAt, slots)) {
      best = e;
      score = Number.isNaN(own) ? Number.NEGATIVE_INFINITY : own;
    }
  }
  return best;
}

function isChosen(expert: number, out: Float32Array, outAt: number, slots: number): boolean {
  for (let slot = 0; slot < slots; slot++) if (out[outAt + slot] === expert) return true;
  return false;
}

/** `sink`: one more score, which counts in the sum and gets no weight. */
export function softmaxInPlace(
  x: Float32Array,
  at: number,
  n: number,
  sink: number = Number.NEGATIVE_INFINITY,
): void {
  let max = sink;
  for (let i = 0; i < n; i++) max = Math.max(max, x[at + i]!);
  let sum = sink === Number.NEGATIVE_INFINITY ? 0 : f32(Math.exp(f32(sink - max)));
  for (let i = 0; i < n; i++) {
    const e = f32(Math.exp(f32(x[at + i]! - max)));
    x[at + i] = e;
    sum += e;
  }
  const inverse = f32(1 / sum);
  for (let i = 0; i < n; i++) x[at + i]! *= inverse;
}
