// Finds the scale of a sub-block for the quantizers of IQ1_S and IQ1_M: two cuts divide its sorted values into those
// that become -1, 0 and 1, an eighth is added to or subtracted from all three, and every pair of cuts is tried. The float32
// steps and their order are ggml's (quantize_row_iq1_s_impl, quantize_row_iq1_m_impl).

const f = Math.fround;

const eighth = 0.125;
/** The value of quant 1 with the shift added, and subtracted; quant -1 has the values -down and -up. */
const up = 1 + eighth;
const down = 1 - eighth;
/** The same for -1, 0 and 1. */
export const shiftedUp: Float32Array = Float32Array.of(-down, eighth, up);
export const shiftedDown: Float32Array = Float32Array.of(-up, -eighth, down);

/** Values before `first` become -1, those from `second` on 1. */
export interface Split {
  first: number;
  second: number;
  /** Which shift was best: 0 or 1 for one of a sub-block; 0 to 3 for one of each half, the first half's being bit 1. */
  shift: number;
  /** Below 0: all quants and shifts are the other way round. */
  scale: number;
  /** Whether there is one at all: not where all weights are 0, or sums overflow. */
  isFound: boolean;
}

/** Sums of one split: takes it where it is better, and returns the score to beat. */
function consider(
  split: Split,
  score: number,
  sumQX: number,
  sumQQ: number,
  first: number,
  second: number,
  shift: number,
): number {
  if (!(sumQQ > 0 && f(sumQX * sumQX) > f(score * sumQQ))) return score;
  split.scale = f(sumQX / sumQQ);
  split.first = first;
  split.second = second;
  split.shift = shift;
  split.isFound = true;
  return f(split.scale * sumQX);
}

const lowestFloat = f(-3.4028234663852886e38);

// Sums over the values before one: of weight * value, and of weights. Of halves: 17 each.
const sumsX = new Float32Array(34);
const sumsW = new Float32Array(34);
// Sums of the values from one on, as ones: QX with the shift up and down, then QQ.
const ones = new Float32Array(4 * 33);

/** The best split of `count` values in ascending order with one shift. */
export function splitWhole(
  values: Float32Array,
  weights: Float32Array,
  count: number,
  split: Split,
): void {
  for (let j = 0; j < count; j++) {
    sumsX[j + 1] = sumsX[j]! + f(weights[j]! * values[j]!);
    sumsW[j + 1] = sumsW[j]! + weights[j]!;
  }
  for (let second = 0; second <= count; second++) {
    const x = f(sumsX[count]! - sumsX[second]!);
    const w = f(sumsW[count]! - sumsW[second]!);
    ones[4 * second] = x * up;
    ones[4 * second + 1] = x * down;
    ones[4 * second + 2] = f(w * up) * up;
    ones[4 * second + 3] = f(w * down) * down;
  }
  split.isFound = false;
  let score = lowestFloat;
  for (let first = 0; first <= count; first++) {
    const x = sumsX[first]!;
    const w = sumsW[first]!;
    const minusX = f(x * -down);
    const minusXDown = f(x * -up);
    const minusW = f(f(w * down) * down);
    const minusWDown = f(f(w * up) * up);
    for (let second = first; second <= count; second++) {
      // Zeros, an eighth up; down it is the opposite, and the square is the same.
      const zeroX = f(f(sumsX[second]! - x) * eighth);
      const zeroW = f(f(f(sumsW[second]! - w) * eighth) * eighth);
      const at = 4 * second;
      const sumQX = f(f(minusX + zeroX) + ones[at]!);
      const sumQQ = f(f(minusW + zeroW) + ones[at + 2]!);
      score = consider(split, score, sumQX, sumQQ, first, second, 0);
      const sumQXDown = f(f(minusXDown - zeroX) + ones[at + 1]!);
      const sumQQDown = f(f(minusWDown + zeroW) + ones[at + 3]!);
      score = consider(split, score, sumQXDown, sumQQDown, first, second, 1);
    }
  }
}

/** The values of quants -1, 0 and 1 in a half. */
export function shiftedValues(shift: number, isSecond: boolean): Float32Array {
  return (isSecond ? shift & 1 : shift >> 1) === 0 ? shiftedUp : shiftedDown;
}

const halvesCount = 16;
const secondHalf = halvesCount + 1;
/**
 * The growth of the square of a quant's value as the quant changes from 0 to -1, and from 1 to 0; with the shift up, and
 * down.
 */
const upToMinus = 0.75;
const upToZero = -1.25;
const downToMinus = 1.25;
const downToZero = -0.75;

/** The same for 16 values with a shift for each half; `isSecond` tells which half a value belongs to. */
export function splitHalves(
  values: Float32Array,
  weights: Float32Array,
  isSecond: Uint8Array,
  split: Split,
): void {
  sumHalves(values, weights, isSecond);
  const x0 = sumsX[halvesCount]!;
  const x1 = sumsX[secondHalf + halvesCount]!;
  const w0 = sumsW[halvesCount]!;
  const w1 = sumsW[secondHalf + halvesCount]!;
  split.isFound = false;
  let score = lowestFloat;
  for (let first = 0; first <= halvesCount; first++) {
    // A sum is that of all values as ones, plus the changes as they become zeros and minus ones.
    const first0 = sumsW[first]!;
    const first1 = sumsW[secondHalf + first]!;
    const startUp0 = f(f(first0 * upToMinus) + f(f(w0 * up) * up));
    const startUp1 = f(f(first1 * upToMinus) + f(f(w1 * up) * up));
    const startDown0 = f(f(first0 * downToMinus) + f(f(w0 * down) * down));
    const startDown1 = f(f(first1 * downToMinus) + f(f(w1 * down) * down));
    for (let second = first; second <= halvesCount; second++) {
      const cut0 = f(sumsX[second]! + sumsX[first]!);
      const cut1 = f(sumsX[secondHalf + second]! + sumsX[secondHalf + first]!);
      const qxUp0 = f(f(x0 * up) - cut0);
      const qxUp1 = f(f(x1 * up) - cut1);
      const qxDown0 = f(f(x0 * down) - cut0);
      const qxDown1 = f(f(x1 * down) - cut1);
      const second0 = sumsW[second]!;
      const second1 = sumsW[secondHalf + second]!;
      const qqUp0 = f(f(second0 * upToZero) + startUp0);
      const qqUp1 = f(f(second1 * upToZero) + startUp1);
      const qqDown0 = f(f(second0 * downToZero) + startDown0);
      const qqDown1 = f(f(second1 * downToZero) + startDown1);
      score = consider(split, score, f(qxUp0 + qxUp1), f(qqUp0 + qqUp1), first, second, 0);
      score = consider(split, score, f(qxUp0 + qxDown1), f(qqUp0 + qqDown1), first, second, 1);
      score = consider(split, score, f(qxDown0 + qxUp1), f(qqDown0 + qqUp1), first, second, 2);
      score = consider(split, score, f(qxDown0 + qxDown1), f(qqDown0 + qqDown1), first, second, 3);
    }
  }
}

function sumHalves(values: Float32Array, weights: Float32Array, isSecond: Uint8Array): void {
  sumsX[secondHalf] = 0;
  sumsW[secondHalf] = 0;
  for (let j = 0; j < halvesCount; j++) {
    const own = isSecond[j] === 1 ? secondHalf : 0;
    const other = secondHalf - own;
    sumsX[own + j + 1] = sumsX[own + j]! + f(weights[j]! * values[j]!);
    sumsW[own + j + 1] = sumsW[own + j]! + weights[j]!;
    sumsX[other + j + 1] = sumsX[other + j]!;
    sumsW[other + j + 1] = sumsW[other + j]!;
  }
}
