// Activations as exact matmuls read them: rounded by the divisions and roundings of the CPU's quantize kernels
// (src/kernels/ops/matmul/quantize-activations.ts), or to half floats beside half floats.
//
// Beside quantized weights a row of the rounded buffer is, in words: the quants, four bytes a word [cols / 4]; the scale of each
// block of 32 as a float [cols / 32]; the sums of each 16 quants [cols / 16]. It takes at most the room of the floats.

import type { NodeOf } from "../../../graph/graph.ts";
import { nearestHalfText } from "../wgsl/halves.ts";
import { float, type Kernel, LANES } from "../wgsl/kernel.ts";
import { roundKernel, roundsActivations, roundsToHalves } from "../wgsl/round-activations.ts";
import { divideText, fusedText, type Roundings } from "./arithmetic.ts";
import { exactKernel, read, zero } from "./kernel.ts";
import type { ExactContext } from "./op.ts";
import { exactFormatOf } from "./weights.ts";

/** Offsets of a row's scales and sums, in words from its beginning. */
export function activationPlaces(cols: number): { scales: number; sums: number } {
  return { scales: cols / 4, sums: cols / 4 + cols / 32 };
}

/** Matmuls of the same activations share the rounding of the first. */
export function roundOnce(
  { x, weight }: Pick<NodeOf<"matmul">, "x" | "weight">,
  { rounded, wide, arithmetic }: ExactContext,
): Kernel[] {
  if (!roundsActivations(weight)) return [];
  const span = exactFormatOf(weight.dtype)?.packing.activationSpan;
  const activation = span === undefined ? weight.dtype.activation : `blocks of ${32 * span}`;
  if (rounded.value === x && rounded.activation === activation) return [];
  Object.assign(rounded, { value: x, activation });
  if (span !== undefined) return [quantizeKernel(x, span, arithmetic)];
  return [roundKernel(x, weight, false, wide && roundsToHalves(weight))];
}

/** A lane rounds a block of 32; eight of them share a scale, or none. */
function quantizeKernel(x: NodeOf<"matmul">["x"], span: 1 | 8, arithmetic: Roundings): Kernel {
  const { cols } = x;
  const blocks = cols / 32;
  const { scales, sums } = activationPlaces(cols);
  const least = float(1e-30);
  const shared = `
  magnitudes[lane] = largest;
  workgroupBarrier();
  let first = lane - lane % 8u;
  for (var j = 0u; j < 8u; j++) { largest = max(largest, magnitudes[first + j]); }
  let inverse = divide(127.0, max(largest, ${least}));
  let scale = divide(1.0, inverse);`;
  const own = `
  let inverse = divide(1.0, divide(max(largest, ${least}), 127.0));
  let scale = nearestHalf(divide(largest, 127.0));`;
  return exactKernel({
    name: `quantize ${32 * span} [${cols}]`,
    bindings: [
      read("x", x),
      { name: "result", type: "u32", source: { kind: "rounded" }, writes: true },
    ],
    declarations: `${fusedText(arithmetic, zero)}${divideText(arithmetic, zero)}${nearestHalfText}${span === 8 ? `\nvar<workgroup> magnitudes: array<f32, ${LANES}>;` : ""}`,
    rows: x.rows,
    grid: (rows) => [Math.ceil(blocks / LANES), rows, 1],
    body: `
  let block = group.x * ${LANES}u + lane;
  let exists = block < ${blocks}u;
  let row = group.y * ${cols}u;
  let source = row + min(block, ${blocks - 1}u) * 32u;
  var largest = 0.0;
  for (var i = 0u; i < 32u; i++) { largest = max(largest, abs(x[source + i])); }
  ${span === 8 ? shared : own}
  if (!exists) { return; }
  for (var part = 0u; part < 2u; part++) {
    var sum = 0;
    for (var v = 4u * part; v < 4u * part + 4u; v++) {
      var bytes = 0u;
      for (var j = 0u; j < 4u; j++) {
        let quant = clamp(i32(round(x[source + 4u * v + j] * inverse)), -128, 127);
        sum += quant;
        bytes |= (bitcast<u32>(quant) & 255u) << (8u * j);
      }
      result[row + block * 8u + v] = bytes;
    }
    result[row + ${sums}u + block * 2u + part] = bitcast<u32>(sum);
  }
  result[row + ${scales}u + block] = bitcast<u32>(scale);`,
  });
}
