// round_f16, round_bf16: n float32 values rounded to the nearest f16 or bf16 (ties to even), stored as float32. Activations
// are rounded in this way for matmuls with weights of these types. In place allowed. The largest magnitude among the results is
// stored, too: where it is infinite, the type cannot hold the values.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { forEachVector, load, type Stream, store, stream } from "../loops.ts";

type Round = (k: KernelBuilder, x: Reg<"f32v">, out: Stream, i: number) => Reg<"f32v">;

export const roundF16 = (width: number): Kernel => roundKernel("round_f16", width, throughF16);
export const roundBf16 = (width: number): Kernel => roundKernel("round_bf16", width, toBf16);

/** Through memory: stores half floats where the result will be, and loads them again. */
const throughF16: Round = (k, x, { pointer, step }, i) => {
  k.op("f32v.store_f16", [pointer, x], i * step);
  return k.op("f32v.load_f16", [pointer], i * step);
};

/**
 * Adds 0x7fff, or 0x8000 where the upper 16 bits are odd, and keeps the upper 16 bits. A NaN that arithmetic makes stays
 * NaN; one with nearly all bits set would become 0.
 */
const toBf16: Round = (k, x) => {
  const bits = k.op("f32v.as_i32v", [x]);
  const isOdd = k.op("i32v.and", [k.op("i32v.shr_u", [bits], 16), k.op("i32v.const", [], 1)]);
  const half = k.op("i32v.add", [isOdd, k.op("i32v.const", [], 0x7fff)]);
  const rounded = k.op("i32v.add", [bits, half]);
  return k.op("i32v.as_f32v", [
    k.op("i32v.and", [rounded, k.op("i32v.const", [], 0xffff0000 | 0)]),
  ]);
};

function roundKernel(name: string, width: number, round: Round): Kernel {
  const k = new KernelBuilder(name, width);
  const x = stream(k, k.param("ptr", "x"));
  const out = stream(k, k.param("ptr", "out"));
  const n = k.param("i32", "n");
  const largestAt = k.param("ptr", "largest");
  const largest = k.variable(k.op("f32v.const", [], 0), "largest");
  forEachVector(k, n, 2, [x, out], (i) => {
    const rounded = round(k, load(k, x, i), out, i);
    store(k, out, i, rounded);
    k.update(largest, "f32v.max", [largest, k.op("f32v.abs", [rounded])]);
  });
  k.op("f32.store", [largestAt, k.op("f32v.hmax", [largest])]);
  return k.finish();
}
