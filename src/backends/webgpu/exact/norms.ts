// rms_norm, layer_norm and softmax with the sums of the CPU's kernels (src/kernels/ops/elementwise/): as many partial sums as a
// vector has lanes, times the vectors of a round; the vectors that fill no round go to those of its first.

import { float, LANES } from "../wgsl/kernel.ts";
import {
  divideText,
  exponentialText,
  multiplyAddText,
  squareRootText,
  sumOfLanes,
} from "./arithmetic.ts";
import { exactKernel, read, vector, write, zero } from "./kernel.ts";
import type { ExactLower } from "./op.ts";

/** Vectors of a round: of the norms, and of softmax. */
const NORM_UNROLL = 4;
const SOFTMAX_UNROLL = 2;

/**
 * WGSL that leaves the sum of `term(i)` over `size` values in `partial[0]`, where `add(sum, i)` is how one joins. Each thread has a
 * lane of a vector of a round; a whole workgroup must come by.
 */
export function laneSumText(
  size: string,
  lanes: number,
  unroll: number,
  add: (sum: string, i: string) => string,
): string {
  const round = lanes * unroll;
  return `
  if (lane < ${round}u) {
    var sum = 0.0;
    // A last vector that is not full counts as one.
    let whole = ((${size} + ${lanes - 1}u) / ${round}u) * ${round}u;
    for (var i = lane; i < min(whole, ${size}); i += ${round}u) { sum = ${add("sum", "i")}; }
    if (lane < ${lanes}u) { for (var i = whole + lane; i < ${size}; i += ${lanes}u) { sum = ${add("sum", "i")}; } }
    partial[lane] = sum;
  }
  workgroupBarrier();
  if (lane < ${lanes}u) {
    ${joinText(lanes, unroll)}
  }
  workgroupBarrier();
  if (lane == 0u) { partial[0] = ${sumOfLanes("partial", "0u", lanes)}; }
  workgroupBarrier();`;
}

function joinText(lanes: number, unroll: number): string {
  const part = (i: number): string => `partial[lane + ${i * lanes}u]`;
  const pairs = Array.from(
    { length: unroll / 2 },
    (_, i) => `(${part(2 * i)} + ${part(2 * i + 1)})`,
  );
  return `partial[lane] = ${pairs.join(" + ")};`;
}

/** Workgroup memory of laneSumText(); it has more threads than partial sums. */
export const partialText: string = `
var<workgroup> partial: array<f32, ${LANES}>;`;

export const rmsNorm: ExactLower<"rms_norm"> = (node, { arithmetic, lanes: lanesOf }) => {
  const { x, weight, out, eps } = node;
  const size = weight.shape[0]!;
  const perRow = x.cols / size;
  const lanes = lanesOf("rms_norm");
  return [
    exactKernel({
      name: `rms_norm [${size}]`,
      bindings: [read("x", x), vector("scale", weight), write(out)],
      declarations: `${partialText}${multiplyAddText(arithmetic, zero)}${divideText(arithmetic, zero)}${squareRootText(arithmetic)}`,
      rows: out.rows,
      grid: (rows) => [perRow, rows, 1],
      body: `
  let first = (group.y * ${perRow}u + group.x) * ${size}u;
  ${laneSumText(`${size}u`, lanes, NORM_UNROLL, (sum, i) => `multiplyAdd(x[first + ${i}], x[first + ${i}], ${sum})`)}
  let factor = divide(1.0, squareRoot(divide(partial[0], ${float(size)}) + ${float(eps)}));
  for (var i = lane; i < ${size}u; i += ${LANES}u) { result[first + i] = rounded(x[first + i] * factor) * scale[i]; }`,
    }),
  ];
};

export const layerNorm: ExactLower<"layer_norm"> = (node, { arithmetic, lanes: lanesOf }) => {
  const { x, weight, bias, out, eps } = node;
  const size = weight.shape[0]!;
  const perRow = x.cols / size;
  const lanes = lanesOf(bias ? "layer_norm_bias" : "layer_norm");
  return [
    exactKernel({
      name: `layer_norm [${size}]`,
      bindings: [
        read("x", x),
        vector("scale", weight),
        write(out),
        ...(bias ? [vector("bias", bias)] : []),
      ],
      declarations: `${partialText}${multiplyAddText(arithmetic, zero)}${divideText(arithmetic, zero)}${squareRootText(arithmetic)}
fn square(v: f32) -> f32 { return rounded(v * v); }`,
      rows: out.rows,
      grid: (rows) => [perRow, rows, 1],
      body: `
  let first = ${perRow === 1 ? "group.y" : `(group.y * ${perRow}u + group.x)`} * ${size}u;
  ${laneSumText(`${size}u`, lanes, NORM_UNROLL, (sum, i) => `${sum} + x[first + ${i}]`)}
  let mean = divide(partial[0], ${float(size)});
  workgroupBarrier();
  ${laneSumText(`${size}u`, lanes, NORM_UNROLL, (sum, i) => `${sum} + square(x[first + ${i}] - mean)`)}
  let factor = divide(1.0, squareRoot(divide(partial[0], ${float(size)}) + ${float(eps)}));
  for (var i = lane; i < ${size}u; i += ${LANES}u) {
    let scaled = rounded(rounded((x[first + i] - mean) * factor) * scale[i]);
    result[first + i] = ${bias ? "scaled + bias[i]" : "scaled"};
  }`,
    }),
  ];
};

export const softmax: ExactLower<"softmax"> = ({ x, out }, { arithmetic, lanes: lanesOf }) => {
  const size = x.cols;
  const lanes = lanesOf("softmax");
  return [
    exactKernel({
      name: `softmax [${size}]`,
      bindings: [read("x", x), write(out)],
      declarations: `${partialText}${multiplyAddText(arithmetic, zero)}${divideText(arithmetic, zero)}${exponentialText}`,
      rows: out.rows,
      grid: (rows) => [1, rows, 1],
      body: `
  let first = group.y * ${size}u;
  var top = x[first];
  for (var i = 0u; i < ${size}u; i++) { top = max(top, x[first + i]); }
  ${laneSumText(`${size}u`, lanes, SOFTMAX_UNROLL, (sum, i) => `${sum} + exponential(x[first + ${i}] - top)`)}
  let factor = divide(1.0, partial[0]);
  for (var i = lane; i < ${size}u; i += ${LANES}u) { result[first + i] = exponential(x[first + i] - top) * factor; }`,
    }),
  ];
};
