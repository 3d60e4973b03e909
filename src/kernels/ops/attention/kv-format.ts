// The layout of values in a row of the KV cache, for the attention kernels: the interface. The formats are in
// kv-formats.ts.
//
// A format opens a piece of a row (a pointer to a number of vectors of values) and gives its vectors as floats. Some give
// them without their scale: the kernel multiplies by it where that costs least.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";

export interface KvChunk {
  /** Vector i of the piece. */
  load(i: number): Reg<"f32v">;
  /** A factor on all values of the piece, in every lane. */
  readonly scale: Reg<"f32v"> | undefined;
}

export interface KvFormat {
  /** As in dtypes/. */
  readonly name: string;
  /** Values of a block, which are opened together; undefined: any number of vectors. */
  readonly blockValues: number | undefined;
  /** Registers that an open piece holds, besides the vector that is loaded. Kernels choose their register tiles by it. */
  readonly registers: number;
  /** Bytes of `values` values. */
  bytes(values: number): number;
  /** Whether pieces have a scale. */
  readonly isScaled: boolean;
  /** Called before a kernel's loops, for constants that all pieces share. */
  reader(k: KernelBuilder): KvReader;
}

/** Opens the piece of a row that begins at the pointer. */
export type KvReader = (pointer: Reg<"ptr">) => KvChunk;

/** The half float at the pointer in every lane, times a power of 2. */
export function splatHalf(k: KernelBuilder, pointer: Reg<"ptr">, times = 1): Reg<"f32v"> {
  return upperHalf(k, k.op("i32v.shl", [k.op("i32v.load_splat", [pointer])], 16), times);
}

/**
 * The half float in the upper 16 bits of each lane, times a power of 2: sign, exponent and fraction are shifted to the bits of
 * a float32, then multiplied by 2^112 for the different bias of the exponent. Infinity reads as 65536.
 */
export function upperHalf(k: KernelBuilder, high: Reg<"i32v">, times = 1): Reg<"f32v"> {
  const spread = k.op("i32v.shr_s", [high], 3);
  const bits = k.op("i32v.and", [spread, k.op("i32v.const", [], 0x8fffe000 | 0)]);
  const exponent = k.op("i32v.as_f32v", [bits]);
  return k.op("f32v.mul", [exponent, k.op("f32v.const", [], times * 2 ** 112)]);
}
