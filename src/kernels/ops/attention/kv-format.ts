// How values lie in a row of the KV cache, for the attention kernels: float32, half floats, or q8_0 blocks.
//
// A format opens a piece of a row (a pointer to so many vectors of values) and gives its vectors as floats. q8_0 gives them
// without their scale: the kernel multiplies by it where that costs least.

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
  /** Bytes that so many values take. */
  bytes(values: number): number;
  open(k: KernelBuilder, pointer: Reg<"ptr">): KvChunk;
}

const f32: KvFormat = {
  name: "f32",
  blockValues: undefined,
  bytes: (values) => 4 * values,
  open: (k, pointer) => ({
    load: (i) => k.op("f32v.load", [pointer], i * k.width),
    scale: undefined,
  }),
};

/** Infinities (values beyond 65504) may read as 65536, which does less harm. */
const f16: KvFormat = {
  name: "f16",
  blockValues: undefined,
  bytes: (values) => 2 * values,
  open: (k, pointer) => ({
    load: (i) => k.op("f32v.load_f16_finite", [pointer], i * 2 * k.lanes),
    scale: undefined,
  }),
};

/** ggml's block of 34 bytes: a half float, then 32 signed bytes. */
const q8_0: KvFormat = {
  name: "q8_0",
  blockValues: 32,
  bytes: (values) => (values / 32) * 34,
  open: (k, pointer) => ({
    load: (i) => k.op("f32v.from_i32v", [k.op("i32v.load_i8", [pointer], 2 + i * k.lanes)]),
    scale: splatHalf(k, pointer),
  }),
};

export const kvFormats: readonly KvFormat[] = [f32, f16, q8_0];

/**
 * The half float at the pointer in every lane: sign, exponent and fraction are moved to their places in a float32, then
 * multiplied by 2^112 for the different bias of the exponent. Infinity reads as 65536.
 */
function splatHalf(k: KernelBuilder, pointer: Reg<"ptr">): Reg<"f32v"> {
  const high = k.op("i32v.shl", [k.op("i32v.load_splat", [pointer])], 16);
  const spread = k.op("i32v.shr_s", [high], 3);
  const bits = k.op("i32v.and", [spread, k.op("i32v.const", [], 0x8fffe000 | 0)]);
  return k.op("f32v.mul", [k.op("i32v.as_f32v", [bits]), k.op("f32v.const", [], 2 ** 112)]);
}
