// Row panels of half floats (F16), coded so that a kernel widens them with a shift and a mask, for targets without an
// instruction for it: the cost of widening limits a matmul with one token.
//
// A half float has 10 bits of mantissa and 5 of exponent. Shifted to those of a float32, without adjusting the bias, it is
// exactly its value times 2^-112, and activations are multiplied to make up for it instead of every weight. But half floats
// below 2^-14 become subnormal float32 numbers, which are a hundred times slower on some processors, and a trained model has
// one in 400. So the weights of a panel are first multiplied by 2^10 and rounded to half floats again, which leaves no
// subnormal and loses nothing as long as all are below 64. The factor on activations is therefore 2^102.
//
// The half-float scales of quantized types (packed.ts) are coded in the same way, with a factor for each row.
//
// A panel is
//   f32 x 4  the factor on its results: 1; or 2^10, where its weights were not raised because one of them is 64 or more;
//            or NaN, where a weight is infinite or NaN, which makes the results NaN
//   codes    column -> 16 rows, 2 bytes each

import { f16ToF32, f32ToF16 } from "../../../base/half.ts";
import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { PANEL_ROWS } from "./packed.ts";

export const HALF_PANEL_HEADER = 16;

const RAISE = 10;
/** The bits of the half float 64, which all raised weights are below, and of infinity. */
const RAISE_LIMIT = 0x5400;
const INFINITE = 0x7c00;

/** The factor on activations beside raised codes. */
export const RAISED_SCALE: number = 2 ** (112 - RAISE);

/** The factor on results, from the bits of the largest magnitude among the half floats. */
export function halfFactor(largest: number): number {
  if (largest >= INFINITE) return Number.NaN;
  return largest < RAISE_LIMIT ? 1 : 2 ** RAISE;
}

/**
 * Replaces the words that a kernel left for the factors (the bits of the largest half floats) by the factors, if all half floats
 * could be raised. False: they could not, and the packed panel is useless.
 */
export function acceptRaised(left: Int32Array, factors: Float32Array): boolean {
  if (left.some((largest) => largest >= RAISE_LIMIT)) return false;
  factors.fill(1);
  return true;
}

/** The factor that turns a code of a panel with this factor back into the half float of the file. */
export function codeFactor(factor: number): number {
  return factor === 1 ? 2 ** -RAISE : 1;
}

/** A vector of codes as floats: the weights times 2^-112, or 2^-102 where they are raised. */
export function loadHalfCodes(k: KernelBuilder, w: Reg<"ptr">, at: number): Reg<"f32v"> {
  return asFloats(k, k.op("i32v.shl", [k.op("i32v.load_i16", [w], at)], 13));
}

/** The same for codes in the upper halves of 32-bit lanes. */
export function loadUpperHalfCodes(k: KernelBuilder, w: Reg<"ptr">, at: number): Reg<"f32v"> {
  return asFloats(k, k.op("i32v.shr_s", [k.op("i32v.load", [w], at)], 3));
}

/** Masks shifted codes: removes copies of the sign in three bits of the exponent, and bits of the neighbour. */
function asFloats(k: KernelBuilder, bits: Reg<"i32v">): Reg<"f32v"> {
  return k.op("i32v.as_f32v", [k.op("i32v.and", [bits, k.op("i32v.const", [], 0x8fffe000 | 0)])]);
}

/** Packs up to 16 rows into the panel's `codes` and `header`; `codes` must be zero where there are no rows. */
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
    target[to + col] = f16ToF32(codes[col * PANEL_ROWS + row]!) * factor;
  }
}

let table: Uint16Array | undefined;

/** For each half float, the one 2^10 times as large; infinity where that is too large. */
export function raisedHalves(): Uint16Array {
  table ??= Uint16Array.from({ length: 65536 }, (_, half) => f32ToF16(f16ToF32(half) * 2 ** RAISE));
  return table;
}
