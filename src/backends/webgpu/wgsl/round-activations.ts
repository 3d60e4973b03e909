// Rounds activations before a matmul: to DType.activation, as the reference, the CPU and llama.cpp do, but stored as floats.
// Without it results would be a little more exact, and agree with none of them.
//
// A workgroup rounds 256 values of a row, four per lane; the lanes of a block find its largest magnitude together.

import type { Value, Weight } from "../../../graph/graph.ts";
import { activationText } from "./activations.ts";
import { activationHalfText, nearestHalfText } from "./halves.ts";
import { type Kernel, LANES, makeKernel } from "./kernel.ts";
import { matrixAt } from "./matrix-tiles.ts";

/** Single values, without a scale. */
interface Rounding {
  /** The results are half floats. */
  readonly isHalf?: boolean;
  /** WGSL of `fn rounded(values: vec4f) -> vec4f`, and of the functions that it calls. */
  readonly body: string;
  readonly declarations?: string;
}

/** Blocks of 8-bit quants with a scale. */
export interface BlockQuants {
  /** Values that share a scale. */
  readonly block: number;
  /** WGSL that sets `exact`, the scale before it is rounded, and `inverse` by which values become quants, from `largest`, the largest magnitude. */
  readonly exact: string;
  /** WGSL of the scale that is stored, from an exact one. */
  scale(exact: string): string;
}

/** With a half float as scale. */
const eightBits: BlockQuants = {
  block: 32,
  exact: `let exact = largest / 127.0;
    let inverse = select(0.0, 1.0 / exact, exact > 0.0);`,
  scale: (exact) => `nearestHalf(${exact})`,
};

/**
 * `fn largestOf(values)`: the largest magnitude of four; `fn packed(quants)`: four as a word; `fn quantWord(values, inverse)`: four values as one. The last bit
 * of a float between 2^23 and 2^24 is worth 1, so that adding 1.5 * 2^23 rounds a value (ties to even numbers, as llama.cpp's kernels do), and the last
 * byte is the quant: a conversion would take a multiple of that time, and every workgroup of a matmul rounds all activations.
 */
export const packText = `
fn largestOf(values: vec4f) -> f32 {
  let sizes = abs(values);
  return max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
}
fn packed(quants: vec4f) -> u32 {
  let bytes = bitcast<vec4u>(vec4i(quants)) & vec4u(255u);
  return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}
fn quantWord(values: vec4f, inverse: f32) -> u32 {
  let bytes = bitcast<vec4u>(fma(values, vec4f(inverse), vec4f(12582912.0))) & vec4u(255u);
  return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}`;

/** By the name of DType.activation; for names in neither table, activations stay unchanged. */
const blockQuants: Readonly<Record<string, BlockQuants>> = {
  q8_0: eightBits,
  q8_1: eightBits,
  q8_k: {
    block: 256,
    exact: `let inverse = select(0.0, 127.0 / largest, largest > 0.0);
    let exact = select(0.0, 1.0 / inverse, largest > 0.0);`,
    scale: (exact) => exact,
  },
};

export function blockQuantsOf(activation: string): BlockQuants | undefined {
  return blockQuants[activation];
}

const roundings: Readonly<Record<string, Rounding>> = {
  f16: {
    isHalf: true,
    body: "return vec4f(activationHalf(values.x), activationHalf(values.y), activationHalf(values.z), activationHalf(values.w));",
    declarations: activationHalfText,
  },
  bf16: {
    body: `
  let bits = bitcast<vec4u>(values);
  return bitcast<vec4f>((bits + 0x7fffu + ((bits >> vec4u(16u)) & vec4u(1u))) & vec4u(0xffff0000u));`,
  },
};

export function roundsActivations({ dtype }: Weight): boolean {
  return dtype.activation in roundings || dtype.activation in blockQuants;
}

/** Whether activations may be half floats beside this weight: 8-bit quants lose little. */
export function fitsHalves({ dtype }: Weight): boolean {
  return dtype.activation in blockQuants || (roundings[dtype.activation]?.isHalf ?? false);
}

/** Whether activations become half floats beside this weight, which may not hold them. */
export function roundsToHalves({ dtype }: Pick<Weight, "dtype">): boolean {
  return roundings[dtype.activation]?.isHalf ?? false;
}

/**
 * `halves`: the result is stored as half floats, two in a word, in the order of matrix-tiles.ts. `wide`: rows that half floats
 * cannot hold stay as they are.
 */
export function roundKernel(x: Value, weight: Weight, halves = false, wide = false): Kernel {
  const { activation } = weight.dtype;
  const { cols } = x;
  const text = blockQuants[activation]
    ? quantText(blockQuants[activation])
    : valueText(roundings[activation]!, wide ? { cols, part: weight.shape.at(-1)! } : undefined);
  const stored = halves
    ? `let at = ${matrixAt("group.y", "i", cols)} / 2u;
  if (i < ${cols}u) { result[at] = packHalves(values.xz); result[at + 1u] = packHalves(values.yw); }`
    : `for (var j = 0u; j < 4u && i + j < ${cols}u; j++) { result[group.y * ${cols}u + i + j] = values[j]; }`;
  return makeKernel({
    name: `round to ${activation}${halves ? " in halves" : ""}${wide ? ", or not" : ""} [${cols}]`,
    bindings: [
      { name: "x", type: cols % 4 === 0 ? "vec4f" : "f32", source: { kind: "value", value: x } },
      { name: "result", type: halves ? "u32" : "f32", source: { kind: "rounded" }, writes: true },
    ],
    declarations: `${activationText(cols)}${nearestHalfText}${text.declarations}`,
    rows: x.rows,
    grid: (rows) => [Math.ceil(cols / (LANES * 4)), rows, 1],
    body: `
  let i = (group.x * ${LANES}u + lane) * 4u;
  var values = vec4f();
  if (i < ${cols}u) { values = activation4(group.y, i); }
  ${text.body}
  ${stored}`,
  });
}

interface RoundText {
  readonly declarations: string;
  readonly body: string;
}

/** Columns of a row, and of a row of a matrix: a row may have several, one for each expert. */
interface RowParts {
  readonly cols: number;
  readonly part: number;
}

/** `parts`: those with a value that is too large are not rounded. */
function valueText({ body, declarations = "" }: Rounding, parts?: RowParts): RoundText {
  const rounded = `${declarations}
fn rounded(values: vec4f) -> vec4f { ${body} }`;
  if (!parts) return { declarations: rounded, body: "values = rounded(values);" };
  const { cols, part } = parts;
  // The lanes of a workgroup look at a row together; where it has several parts, each lane at its own.
  const isShared = part === cols;
  const [first, from, step] = isShared
    ? ["0u", "lane * 4u", LANES * 4]
    : [`(min(i, ${cols - 1}u) / ${part}u) * ${part}u`, "0u", 4];
  return {
    declarations: `${rounded}
var<workgroup> magnitudes: array<f32, ${LANES}>;
fn largestOf(values: vec4f) -> f32 {
  let sizes = abs(values);
  return max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
}`,
    body: `
  let first = ${first};
  var largest = 0.0;
  for (var j = ${from}; j < ${part}u; j += ${step}u) {
    largest = max(largest, largestOf(activation4(group.y, first + j)));
  }
  magnitudes[lane] = largest;
  workgroupBarrier();
  ${isShared ? `for (var j = 0u; j < ${LANES}u; j++) { largest = max(largest, magnitudes[j]); }` : ""}
  if (nearestHalf(largest) <= LARGEST_HALF) { values = rounded(values); }`,
  };
}

/** The lanes of a block find its largest magnitude together. */
function quantText({ block, exact, scale }: BlockQuants): RoundText {
  const lanes = block / 4;
  return {
    declarations: `
var<workgroup> magnitudes: array<f32, ${LANES}>;`,
    body: `
  let sizes = abs(values);
  magnitudes[lane] = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
  workgroupBarrier();
  var largest = 0.0;
  let first = lane - lane % ${lanes}u;
  for (var j = 0u; j < ${lanes}u; j++) { largest = max(largest, magnitudes[first + j]); }
  ${exact}
  values = round(values * inverse) * ${scale("exact")};`,
  };
}
