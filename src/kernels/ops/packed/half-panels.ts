// Half floats (F16) in panels, coded so that a kernel can use them as they are, nearly: what widening a half costs is what
// a matmul with one token waits for.
//
// A half has 10 bits of mantissa and 5 of exponent. Shifted to where a float32 has its own, with the exponent's bias as
// it was, it is the float32 of its value times 2^-112, exactly; the activations are multiplied by 2^102 instead of every
// weight by 2^112. But small halves (below 2^-14) become float32 numbers that are subnormal, which some processors
// handle a hundred times as slowly, and a trained model has one in 400. So the weights of a panel are multiplied by 2^10
// before they become halves again, which leaves none that is subnormal and loses nothing as long as all are below 64.
//
// The half-float scales of quantized types (packed.ts) are coded in the same way, with a factor for each row.
//
// A panel is
//   f32 x 4  the factor of its results: 1; or 2^10, where its weights were not raised because one of them is 64 or more;
//            or NaN, where one is no number: the results then are none either
//   codes    column -> 16 rows, 2 bytes each

import { f16ToF32, f32ToF16 } from "../../../base/half.ts";
import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { PANEL_ROWS } from "./packed.ts";

export const HALF_PANEL_HEADER = 16;

const RAISE = 10;
/** The half 64, of which raised weights have less, and infinity. */
const RAISE_LIMIT = 0x5400;
const INFINITE = 0x7c00;

/** What activations are multiplied by beside raised codes. */
export const RAISED_SCALE: number = 2 ** (112 - RAISE);

/** What the results of raised codes are multiplied by, if the largest of the halves has this size (its bits). */
export function halfFactor(largest: number): number {
  if (largest >= INFINITE) return Number.NaN;
  return largest < RAISE_LIMIT ? 1 : 2 ** RAISE;
}

/** What a code beside such a factor is multiplied by to be the half of the file. */
export function codeFactor(factor: number): number {
  return factor === 1 ? 2 ** -RAISE : 1;
}

/** Four codes as floats: the weights times 2^-112, or raised, 2^-102. */
export function loadHalfCodes(k: KernelBuilder, w: Reg<"ptr">, at: number): Reg<"f32v"> {
  return asFloats(k, k.op("i32v.shl", [k.op("i32v.load_i16", [w], at)], 13));
}

/** The same for codes in the upper halves of four 32-bit lanes. */
export function loadUpperHalfCodes(k: KernelBuilder, w: Reg<"ptr">, at: number): Reg<"f32v"> {
  return asFloats(k, k.op("i32v.shr_s", [k.op("i32v.load", [w], at)], 3));
}

/** Shifted codes without what else is in their lanes: the sign, spread over three bits of the exponent, and a neighbour. */
function asFloats(k: KernelBuilder, bits: Reg<"i32v">): Reg<"f32v"> {
  return k.op("i32v.as_f32v", [k.op("i32v.and", [bits, k.op("i32v.const", [], 0x8fffe000 | 0)])]);
}

/** Packs up to 16 rows; `codes` and `header` are those of the panel, `codes` zero where there are no rows. */
export function packHalfPanel(
  source: DataView,
  rows: number,
  cols: number,
  codes: Uint16Array,
  header: Float32Array,
): void {
  const raised = raisedHalves();
  let largest = 0;
  for (let row = 0; row < rows; row++) {
    for (let col = 0; col < cols; col++) {
      const half = source.getUint16(2 * (row * cols + col), true);
      const size = half & 0x7fff;
      if (size > largest) largest = size;
      codes[col * PANEL_ROWS + row] = raised[half]!;
    }
  }
  header.fill(halfFactor(largest));
  if (largest < RAISE_LIMIT) return;
  for (let row = 0; row < rows; row++) {
    for (let col = 0; col < cols; col++) {
      codes[col * PANEL_ROWS + row] = source.getUint16(2 * (row * cols + col), true);
    }
  }
}

/** Row `row` of a panel as floats, into target[to...]: the values of the file. */
export function readHalfPanel(
  codes: Uint16Array,
  header: Float32Array,
  row: number,
  cols: number,
  target: Float32Array,
  to: number,
): void {
  const factor = codeFactor(header[0]!);
  for (let col = 0; col < cols; col++) {
    target[to + col] = f16ToF32[codes[col * PANEL_ROWS + row]!]! * factor;
  }
}

let table: Uint16Array | undefined;

/** For each half, the half 2^10 times as large; where that is none, whatever. */
export function raisedHalves(): Uint16Array {
  table ??= Uint16Array.from({ length: 65536 }, (_, half) =>
    f32ToF16(f16ToF32[half]! * 2 ** RAISE),
  );
  return table;
}
