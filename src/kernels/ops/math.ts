// Functions without an instruction, as sequences of IR: e^x, 1 / (1 + e^-x), tanh x, ln(1 + e^x).
//
// e^x = 2^n * e^r with n = round(x / ln 2) and |r| <= ln 2 / 2, where e^r is a polynomial of degree 6 (its own error is
// 3e-9; with the roundings of float32 the result is within 1.5e-7). Holds whether fma rounds once or twice.

import type { KernelBuilder } from "../ir/builder.ts";
import type { Reg } from "../ir/kernel.ts";

type Vector = Reg<"f32v">;

const log2e = Math.LOG2E;
/** ln 2 in two parts; n times the first is exact. */
const ln2High = 0.693359375;
const ln2Low = -2.1219444005469057e-4;

/** (e^r - 1 - r) / r^2: coefficients of r^0 to r^4 that minimise the largest relative error of e^r. */
const tail = [0.49999993, 0.1666652, 0.0416684, 0.00836885, 0.00138143];

/**
 * Added to a float x, it rounds x to the nearest integer n and leaves n + `bias` in the low bits. Shifted by 23, these are
 * the float 2^(n + bias - 127).
 */
function roundingConstant(bias: number): number {
  return 1.5 * 2 ** 23 + bias;
}

/**
 * e^x. Above 88.72 infinity. Below -86.99 (where it is 1.6e-38, almost the least normal float) 0, so that it gives no
 * subnormal numbers, which are slow on some processors. NaN stays NaN.
 */
export function exp(k: KernelBuilder, x: Vector): Vector {
  // With n + 126 as the exponent, n = -126 gives 0 and n = 128 still fits; the polynomial is twice e^r to make up for it.
  const clamped = clamp(k, x, -87.2, 88.8);
  const { shifted, r } = reduce(k, clamped, 126);
  let y = k.op("f32v.const", [], 2 * tail[4]!);
  for (const c of [tail[3]!, tail[2]!, tail[1]!, tail[0]!, 1, 1]) {
    y = k.op("f32v.fma", [r, y, k.op("f32v.const", [], 2 * c)]);
  }
  return k.op("f32v.mul", [y, powerOfTwo(k, shifted)]);
}

/** 1 / (1 + e^-x) * factor: one division for both. */
export function sigmoidTimes(k: KernelBuilder, x: Vector, factor: Vector): Vector {
  const e = exp(k, k.op("f32v.neg", [x]));
  return k.op("f32v.div", [factor, k.op("f32v.add", [e, k.op("f32v.const", [], 1)])]);
}

/** tanh x = m / (m + 2) with m = e^2x - 1, where m keeps all its digits near 0. */
export function tanh(k: KernelBuilder, x: Vector): Vector {
  // At 10 the result rounds to 1.
  const doubled = k.op("f32v.mul", [clamp(k, x, -10, 10), k.op("f32v.const", [], 2)]);
  const { shifted, r } = reduce(k, doubled, 127);
  let y = k.op("f32v.const", [], tail[4]!);
  for (const c of [tail[3]!, tail[2]!, tail[1]!, tail[0]!]) {
    y = k.op("f32v.fma", [r, y, k.op("f32v.const", [], c)]);
  }
  const rMinus1 = k.op("f32v.fma", [k.op("f32v.mul", [r, r]), y, r]); // e^r - 1
  const scale = powerOfTwo(k, shifted);
  const m = k.op("f32v.fma", [
    rMinus1,
    scale,
    k.op("f32v.sub", [scale, k.op("f32v.const", [], 1)]),
  ]);
  return k.op("f32v.div", [m, k.op("f32v.add", [m, k.op("f32v.const", [], 2)])]);
}

/**
 * ln(1 + e^x) = max(x, 0) + ln(1 + y) with y = e^-|x|, where ln(1 + y) = 2 atanh t with t = y / (2 + y), at most 1/3: eight terms
 * of its series leave 3e-9.
 */
export function softplus(k: KernelBuilder, x: Vector): Vector {
  const y = exp(k, k.op("f32v.neg", [k.op("f32v.abs", [x])]));
  const t = k.op("f32v.div", [y, k.op("f32v.add", [y, k.op("f32v.const", [], 2)])]);
  const square = k.op("f32v.mul", [t, t]);
  let series = k.op("f32v.const", [], 2 / 15);
  for (const power of [13, 11, 9, 7, 5, 3, 1]) {
    series = k.op("f32v.fma", [square, series, k.op("f32v.const", [], 2 / power)]);
  }
  return k.op("f32v.fma", [t, series, k.op("f32v.max", [x, k.op("f32v.const", [], 0)])]);
}

function clamp(k: KernelBuilder, x: Vector, low: number, high: number): Vector {
  const above = k.op("f32v.max", [x, k.op("f32v.const", [], low)]);
  return k.op("f32v.min", [above, k.op("f32v.const", [], high)]);
}

/** x = n ln 2 + r; `shifted` holds n + bias in its low bits. */
function reduce(k: KernelBuilder, x: Vector, bias: number): { shifted: Vector; r: Vector } {
  const constant = k.op("f32v.const", [], roundingConstant(bias));
  const shifted = k.op("f32v.fma", [x, k.op("f32v.const", [], log2e), constant]);
  const n = k.op("f32v.sub", [shifted, constant]);
  const high = k.op("f32v.fma", [n, k.op("f32v.const", [], -ln2High), x]);
  const r = k.op("f32v.fma", [n, k.op("f32v.const", [], -ln2Low), high]);
  return { shifted, r };
}

function powerOfTwo(k: KernelBuilder, shifted: Vector): Vector {
  return k.op("i32v.as_f32v", [k.op("i32v.shl", [k.op("f32v.as_i32v", [shifted])], 23)]);
}
