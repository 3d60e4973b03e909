// What happens to activations before they meet weights of a type: they are rounded to DType.activation, as the reference, the
// CPU and llama.cpp round them, and stay floats. Without it results would be a little more exact and agree with nobody.
//
// A workgroup rounds 256 values of a row, four per lane; the lanes of a block find its largest magnitude together.

import type { Value, Weight } from "../../../graph/graph.ts";
import { activationText } from "./activations.ts";
import { type Kernel, LANES, makeKernel } from "./kernel.ts";

interface Rounding {
  /** Values that share a scale; 1: none do. */
  readonly block: number;
  /** WGSL of `fn rounded(values: vec4f, largest: f32) -> vec4f`. */
  readonly body: string;
}

/** Blocks of 8-bit levels with a half float as scale; halves are rounded away from zero. */
const eightBits: Rounding = {
  block: 32,
  body: `
  let scale = largest / 127.0;
  if (scale == 0.0) { return vec4f(); }
  let levels = values * (1.0 / scale);
  return sign(levels) * floor(abs(levels) + 0.5) * nearestHalf(scale);`,
};

/** By the name of DType.activation; what is not here stays as it is. */
const roundings: Readonly<Record<string, Rounding>> = {
  f16: {
    block: 1,
    body: "return vec4f(nearestHalf(values.x), nearestHalf(values.y), nearestHalf(values.z), nearestHalf(values.w));",
  },
  bf16: {
    block: 1,
    body: `
  let bits = bitcast<vec4u>(values);
  return bitcast<vec4f>((bits + 0x7fffu + ((bits >> vec4u(16u)) & vec4u(1u))) & vec4u(0xffff0000u));`,
  },
  q8_0: eightBits,
  q8_1: eightBits,
  q8_k: {
    block: 256,
    body: `
  if (largest == 0.0) { return vec4f(); }
  let inverse = 127.0 / largest;
  return round(values * inverse) * (1.0 / inverse);`,
  },
};

/** The half float nearest to a value, as a float. By its bits: which way a device's own conversion rounds is its choice. */
const nearestHalfText = `
fn nearestHalf(value: f32) -> f32 {
  if (abs(value) < 6.103515625e-5) { return round(value * 16777216.0) * 5.9604644775390625e-8; }
  let bits = bitcast<u32>(value);
  return bitcast<f32>((bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u);
}`;

export function roundsActivations({ dtype }: Weight): boolean {
  return dtype.activation in roundings;
}

export function roundKernel(x: Value, weight: Weight): Kernel {
  const { activation } = weight.dtype;
  const { block, body } = roundings[activation]!;
  const { cols } = x;
  const lanes = block / 4;
  return makeKernel({
    name: `round to ${activation} [${cols}]`,
    bindings: [
      { name: "x", type: cols % 4 === 0 ? "vec4f" : "f32", source: { kind: "value", value: x } },
      { name: "result", type: "f32", source: { kind: "rounded" }, writes: true },
    ],
    declarations: `${activationText(cols)}${nearestHalfText}
var<workgroup> magnitudes: array<f32, ${LANES}>;
fn rounded(values: vec4f, largest: f32) -> vec4f { ${body} }`,
    rows: x.rows,
    grid: (rows) => [Math.ceil(cols / (LANES * 4)), rows, 1],
    body: `
  let i = (group.x * ${LANES}u + lane) * 4u;
  var values = vec4f();
  if (i < ${cols}u) { values = activation4(group.y, i); }
  ${block > 1 ? largestText(lanes) : "let largest = 0.0;"}
  values = rounded(values, largest);
  for (var j = 0u; j < 4u && i + j < ${cols}u; j++) { result[group.y * ${cols}u + i + j] = values[j]; }`,
  });
}

/** The largest magnitude of this lane's block. */
function largestText(lanes: number): string {
  return `
  let sizes = abs(values);
  magnitudes[lane] = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
  workgroupBarrier();
  var largest = 0.0;
  let first = lane - lane % ${lanes}u;
  for (var j = 0u; j < ${lanes}u; j++) { largest = max(largest, magnitudes[first + j]); }`;
}
