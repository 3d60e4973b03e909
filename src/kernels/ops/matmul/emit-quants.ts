// Unpacks the quants of a block of packed weights, as IR: quant vectors, put together from the fields of quant-fields.ts.
// The caller (dot4.ts, amx.ts, unpack-pairs.ts) knows where the block is.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { type QuantBits, type QuantField, quantFields } from "../packed/quant-fields.ts";

/** The vector of a block that was loaded last: only one is kept, since registers are few and loads are cheap. */
export interface Loaded {
  vector: number;
  raw?: Reg<"i8v">;
}

/** Quant vector v of the block whose quants begin at from + at. */
export function emitQuants(
  k: KernelBuilder,
  bits: QuantBits,
  from: Reg<"ptr">,
  at: number,
  v: number,
  last: Loaded,
): Reg<"i8v"> {
  const pieces = quantFields[bits][v]!.map((field) => {
    if (last.vector !== field.vector) {
      last.raw = k.op("i8v.load", [from], at + k.width * field.vector);
      last.vector = field.vector;
    }
    return emitField(k, last.raw!, field);
  });
  return pieces.reduce((a, b) => k.op("i8v.or", [a, b]));
}

/** One field, shifted to its bits. A shift of 32-bit lanes also brings bits of the neighbouring byte, which are masked. */
function emitField(k: KernelBuilder, raw: Reg<"i8v">, { from, width, to }: QuantField): Reg<"i8v"> {
  if (width === 8) return raw;
  const mask = k.op("i8v.splat", [], ((1 << width) - 1) << to);
  if (from === to) return k.op("i8v.and", [raw, mask]);
  const lanes = k.op("i32v.shr_u", [k.op("i8v.as_i32v", [raw])], from - to); // to is never above from
  return k.op("i8v.and", [k.op("i32v.as_i8v", [lanes]), mask]);
}
