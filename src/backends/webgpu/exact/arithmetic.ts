// What exact kernels compute with: WGSL functions that give the bits of the CPU's float operations. WGSL itself promises only
// sums, differences and products: a product and a sum may be contracted into one, division and square root may be a few last
// bits off, and exp and tanh are the device's own.
//
// `zero` is a word that is 0 whenever a batch runs, which no compiler knows: a product that passes it is rounded first.
// check.ts computes all of this on the device, and refuses one whose bits are others.

import type { Arithmetic } from "../../../kernels/arithmetic.ts";
import { float } from "../wgsl/kernel.ts";

/** Word of the batch data that is always 0 (batch-area.ts has three counts in the first four). */
export const ZERO_WORD = 3;

/**
 * `fn rounded(value) -> f32`: a value that optimizers know nothing of, such as a product that no sum is to be contracted with. `fn multiplyAdd(a, b, c)`: a * b + c, rounded once or twice,
 * as the CPU's. `zero`: WGSL of the word that is 0.
 */
export function multiplyAddText({ fused }: Pick<Arithmetic, "fused">, zero: string): string {
  return `
fn rounded(value: f32) -> f32 { return bitcast<f32>(bitcast<u32>(value) ^ ${zero}); }
fn multiplyAdd(a: f32, b: f32, c: f32) -> f32 { return ${fused ? "fma(a, b, c)" : "rounded(a * b) + c"}; }
fn rounded4(value: vec4f) -> vec4f { return bitcast<vec4f>(bitcast<vec4u>(value) ^ vec4u(${zero})); }
fn multiplyAdd4(a: vec4f, b: vec4f, c: vec4f) -> vec4f { return ${fused ? "fma(a, b, c)" : "rounded4(a * b) + c"}; }`;
}

/**
 * `fn divide(a, b)`, rounded to nearest: the quotient of the device, corrected by remainders, which a fused multiply-add gives without
 * an error. Divisors beyond 2^64 are made smaller first, so that their inverses are no subnormal numbers. `zero` hides the divisor:
 * where it is a constant, NVIDIA's compiler works out the corrections beforehand, and rounds them otherwise.
 */
export const divideText = (zero: string): string => `
fn divide(a: f32, b: f32) -> f32 {
  if (abs(b) > 3.4028234e38) { return 0.0; }
  let smaller = select(1.0, 5.421010862427522e-20, abs(b) > 1.8446744073709552e19);
  let x = a * smaller;
  let y = bitcast<f32>(bitcast<u32>(b * smaller) ^ ${zero});
  var inverse = 1.0 / y;
  inverse = fma(fma(-y, inverse, 1.0), inverse, inverse);
  var quotient = x * inverse;
  quotient = fma(fma(-y, quotient, x), inverse, quotient);
  return fma(fma(-y, quotient, x), inverse, quotient);
}`;

/** `fn squareRoot(x)`, rounded to nearest, of a positive number: y is right where y * (y - 1 ulp) < x <= y * (y + 1 ulp). */
export const squareRootText = `
fn squareRoot(x: f32) -> f32 {
  var y = sqrt(x);
  for (var i = 0u; i < 3u; i++) {
    let below = bitcast<f32>(bitcast<u32>(y) - 1u);
    let above = bitcast<f32>(bitcast<u32>(y) + 1u);
    if (fma(-y, below, x) <= 0.0) { y = below; } else if (fma(-y, above, x) > 0.0) { y = above; }
  }
  return y;
}`;

// The numbers of src/kernels/ops/math.ts, in the order of its operations.
const LOG2E = float(Math.LOG2E);
const LN2_HIGH = float(-0.693359375);
const LN2_LOW = float(2.1219444005469057e-4);
const tail = [0.49999993, 0.1666652, 0.0416684, 0.00836885, 0.00138143];

/** Sets `shifted` and `r` of `x`; `bias` as there. */
const reduceText = (bias: number): string => {
  const constant = float(1.5 * 2 ** 23 + bias);
  return `
  let shifted = multiplyAdd(x, ${LOG2E}, ${constant});
  // Not in sight of the constant that was added, or optimizers let both go.
  let n = rounded(shifted) - ${constant};
  let r = multiplyAdd(n, ${LN2_LOW}, multiplyAdd(n, ${LN2_HIGH}, x));
  let power = bitcast<f32>(bitcast<u32>(shifted) << 23u);`;
};

const chainText = (factor: number, rest: readonly number[]): string =>
  [...tail.toReversed(), ...rest]
    .slice(1)
    .map((c) => `y = multiplyAdd(r, y, ${float(factor * c)});`)
    .join(" ");

/** With the functions above: `fn exponential(x)`, `fn sigmoidTimes(x, factor)`, `fn hyperbolicTangent(x)`. */
export const exponentialText: string = `
fn exponential(value: f32) -> f32 {
  let x = min(max(value, ${float(-87.2)}), ${float(88.8)});${reduceText(126)}
  var y = ${float(2 * tail[4]!)};
  ${chainText(2, [1, 1])}
  return y * power;
}
fn sigmoidTimes(x: f32, factor: f32) -> f32 { return divide(factor, exponential(-x) + 1.0); }`;

/** `fn softplus(x)`, after exponentialText. */
export const softplusText: string = `
fn softplus(x: f32) -> f32 {
  let y = exponential(-abs(x));
  let t = divide(y, y + 2.0);
  let square = t * t;
  var series = ${float(2 / 15)};
  ${[13, 11, 9, 7, 5, 3, 1].map((power) => `series = multiplyAdd(square, series, ${float(2 / power)});`).join(" ")}
  return multiplyAdd(t, series, max(x, 0.0));
}`;

export const tangentText: string = `
fn hyperbolicTangent(value: f32) -> f32 {
  let x = min(max(value, -10.0), 10.0) * 2.0;${reduceText(127)}
  var y = ${float(tail[4]!)};
  ${chainText(1, [])}
  let below = multiplyAdd(r * r, y, r);
  let m = multiplyAdd(below, power, power - 1.0);
  return divide(m, m + 2.0);
}`;

/** WGSL that adds up the `lanes` numbers of `array` from `at` on: halves onto each other, as f32v.sum does. */
export function sumOfLanes(array: string, at: string, lanes: number): string {
  let terms = Array.from({ length: lanes }, (_, lane) => `${array}[${at} + ${lane}u]`);
  while (terms.length > 1) {
    const half = terms.length / 2;
    terms = terms.slice(0, half).map((term, i) => `(${term} + ${terms[i + half]!})`);
  }
  return terms[0]!;
}
