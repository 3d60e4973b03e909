// The arithmetic of exact kernels: WGSL functions that give the bits of the CPU's float operations. WGSL itself promises only
// sums, differences and products: a product and a sum may be contracted into one, a product of products may be computed in another
// order (lavapipe: x * (x * c) for x * x * c), division and square root may be a few last bits off, and exp and tanh are the device's own.
//
// `zero` is a word that is 0 whenever a batch runs, which no compiler knows: a product that passes it is rounded first.
// check.ts computes all of this on the device, finds out whether its fma() rounds once, and refuses one whose bits are others.

import type { Arithmetic } from "../../../kernels/arithmetic.ts";
import { float } from "../wgsl/kernel.ts";

/** The CPU's arithmetic, and the device's means for it. */
export interface ExactArithmetic extends Arithmetic {
  /** Its fma() rounds once. If it does not, fusedText() has a replacement. */
  readonly deviceFuses: boolean;
}

/** The roundings that functions of this file depend on. */
export type Roundings = Pick<ExactArithmetic, "fused" | "deviceFuses">;

/** Word of the batch data that is always 0 (batch-area.ts has three counts in the first four). */
export const ZERO_WORD = 3;

/** WGSL of the function that rounds a * b + c once. */
const fusedName = ({ deviceFuses }: Roundings): string => (deviceFuses ? "fma" : "fused");

/**
 * `fn fused(a, b, c)` and `fn fused4`, where the device's own rounds twice: a * b + c, rounded once. The error of the product and
 * that of the sum are floats themselves, and computed without an error: of products of halves of 12 bits, and by subtractions.
 * Their sum is rounded to odd (an inexact one gets an odd last bit), so that adding it breaks ties in the right direction.
 * No compiler may see through a subtraction: all pass the word that is 0. Where numbers are so small that
 * such errors, or halves of a factor, would be subnormal, they are made larger meanwhile.
 */
export function fusedText(roundings: Roundings, zero: string): string {
  if (roundings.deviceFuses) return "";
  return [fusedOf("", "f32", "u32", "bool"), fusedOf("4", "vec4f", "vec4u", "vec4<bool>")]
    .map((text) => text.replaceAll("ZERO", zero))
    .join("");
}

function fusedOf(suffix: string, floats: string, words: string, truths: string): string {
  const hidden = `hidden${suffix}`;
  return `
fn ${hidden}(value: ${floats}) -> ${floats} { return bitcast<${floats}>(bitcast<${words}>(value) ^ ${words}(ZERO)); }
fn lost${suffix}(a: ${floats}, b: ${floats}, sum: ${floats}) -> ${floats} {
  let part = ${hidden}(sum - a);
  return ${hidden}(a - ${hidden}(sum - part)) + ${hidden}(b - part);
}
fn fused${suffix}(x: ${floats}, y: ${floats}, z: ${floats}) -> ${floats} {
  let one = ${floats}(1.0);
  let up = ${floats}(${float(2 ** 60)});
  let down = ${floats}(${float(2 ** -60)});
  let isLess = abs(x) < abs(y);
  let less = select(y, x, isLess);
  let isSmall = max(abs(x * y), abs(z)) < down;
  let isTiny = abs(less) < down;
  let a = less * select(one, up, isSmall | isTiny);
  let b = select(x, y, isLess) * select(one, down, isTiny & !isSmall);
  let c = z * select(one, up, isSmall);
  let product = ${hidden}(a * b);
  let highA = bitcast<${floats}>(bitcast<${words}>(a) & ${words}(0xfffff000u));
  let highB = bitcast<${floats}>(bitcast<${words}>(b) & ${words}(0xfffff000u));
  let lowA = ${hidden}(a - highA);
  let lowB = ${hidden}(b - highB);
  let three = ${hidden}(${hidden}(${hidden}(highA * highB - product) + highA * lowB) + lowA * highB);
  let rest = ${hidden}(three + lowA * lowB); // of the product
  let sum = ${hidden}(product + c);
  let first = ${hidden}(lost${suffix}(product, c, sum)); // of the sum
  let both = ${hidden}(first + rest);
  let more = lost${suffix}(first, rest, both);
  let bits = bitcast<${words}>(both);
  let isEven = (bits & ${words}(1u)) == ${words}(0u);
  let isUp = (more > ${floats}(0.0)) == (both > ${floats}(0.0));
  let odd = select(bits, select(bits - ${words}(1u), bits + ${words}(1u), isUp), isEven & (more != ${floats}(0.0)));
  let whole: ${truths} = (bitcast<${words}>(sum) & ${words}(0x7f800000u)) != ${words}(0x7f800000u);
  return select(sum, ${hidden}(sum + bitcast<${floats}>(odd)) * select(one, down, isSmall), whole);
}`;
}

/**
 * `fn rounded(value) -> f32`: a value that optimizers know nothing of, such as a product that no sum is to be contracted with, or that is a factor of another one. `fn multiplyAdd(a, b, c)`: a * b + c, rounded once or twice,
 * as the CPU's; and fusedText(). `zero`: WGSL of the word that is 0.
 */
export function multiplyAddText(roundings: Roundings, zero: string): string {
  const { fused } = roundings;
  const once = fusedName(roundings);
  const once4 = roundings.deviceFuses ? once : `${once}4`;
  return `${fusedText(roundings, zero)}
fn rounded(value: f32) -> f32 { return bitcast<f32>(bitcast<u32>(value) ^ ${zero}); }
fn multiplyAdd(a: f32, b: f32, c: f32) -> f32 { return ${fused ? `${once}(a, b, c)` : "rounded(a * b) + c"}; }
fn rounded4(value: vec4f) -> vec4f { return bitcast<vec4f>(bitcast<vec4u>(value) ^ vec4u(${zero})); }
fn multiplyAdd4(a: vec4f, b: vec4f, c: vec4f) -> vec4f { return ${fused ? `${once4}(a, b, c)` : "rounded4(a * b) + c"}; }`;
}

/**
 * `fn divide(a, b)`, after fusedText(), rounded to nearest: the quotient of the device, corrected by remainders, which a fused multiply-add gives without
 * an error. Divisors beyond 2^64 are made smaller first, so that their inverses are no subnormal numbers. `zero` hides the divisor:
 * where it is a constant, NVIDIA's compiler works out the corrections beforehand, and rounds them otherwise.
 */
export function divideText(roundings: Roundings, zero: string): string {
  const fma = fusedName(roundings);
  return `
fn divide(a: f32, b: f32) -> f32 {
  if (abs(b) > 3.4028234e38) { return 0.0; }
  let smaller = select(1.0, 5.421010862427522e-20, abs(b) > 1.8446744073709552e19);
  let x = a * smaller;
  let y = bitcast<f32>(bitcast<u32>(b * smaller) ^ ${zero});
  var inverse = 1.0 / y;
  inverse = ${fma}(${fma}(-y, inverse, 1.0), inverse, inverse);
  var quotient = x * inverse;
  quotient = ${fma}(${fma}(-y, quotient, x), inverse, quotient);
  return ${fma}(${fma}(-y, quotient, x), inverse, quotient);
}`;
}

/**
 * `fn squareRoot(x)`, after fusedText(), rounded to nearest, of a positive number: y is right where y * (y - 1 ulp) < x <= y * (y + 1 ulp).
 */
export function squareRootText(roundings: Roundings): string {
  const fma = fusedName(roundings);
  return `
fn squareRoot(x: f32) -> f32 {
  var y = sqrt(x);
  for (var i = 0u; i < 3u; i++) {
    let below = bitcast<f32>(bitcast<u32>(y) - 1u);
    let above = bitcast<f32>(bitcast<u32>(y) + 1u);
    if (${fma}(-y, below, x) <= 0.0) { y = below; } else if (${fma}(-y, above, x) > 0.0) { y = above; }
  }
  return y;
}`;
}

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
  return rounded(y * power);
}
fn sigmoidTimes(x: f32, factor: f32) -> f32 { return divide(factor, exponential(-x) + 1.0); }`;

/** `fn softplus(x)`, after exponentialText. */
export const softplusText: string = `
fn softplus(x: f32) -> f32 {
  let y = exponential(-abs(x));
  let t = divide(y, y + 2.0);
  let square = rounded(t * t);
  var series = ${float(2 / 15)};
  ${[13, 11, 9, 7, 5, 3, 1].map((power) => `series = multiplyAdd(square, series, ${float(2 / power)});`).join(" ")}
  return multiplyAdd(t, series, max(x, 0.0));
}`;

export const tangentText: string = `
fn hyperbolicTangent(value: f32) -> f32 {
  let x = min(max(value, -10.0), 10.0) * 2.0;${reduceText(127)}
  var y = ${float(tail[4]!)};
  ${chainText(1, [])}
  let below = multiplyAdd(rounded(r * r), y, r);
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
