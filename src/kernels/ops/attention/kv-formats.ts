// The formats of rows of the KV cache, as a table: floats, q8_0, and the types of nibbles (kv-nibbles.ts). A type that is added
// here needs a line in dtypes/kv-types.ts.

import type { KvFormat } from "./kv-format.ts";
import { splatHalf } from "./kv-format.ts";
import { nibbleFormats } from "./kv-nibbles.ts";

export const f32Rows: KvFormat = {
  name: "f32",
  blockValues: undefined,
  registers: 0,
  isScaled: false,
  bytes: (values) => 4 * values,
  reader: (k) => (pointer) => ({
    load: (i) => k.op("f32v.load", [pointer], i * k.width),
    scale: undefined,
  }),
};

/** Infinities (values beyond 65504) may read as 65536, which does less harm. */
const f16: KvFormat = {
  name: "f16",
  blockValues: undefined,
  registers: 0,
  isScaled: false,
  bytes: (values) => 2 * values,
  reader: (k) => (pointer) => ({
    load: (i) => k.op("f32v.load_f16_finite", [pointer], i * 2 * k.lanes),
    scale: undefined,
  }),
};

const bf16: KvFormat = {
  name: "bf16",
  blockValues: undefined,
  registers: 0,
  isScaled: false,
  bytes: (values) => 2 * values,
  reader: (k) => (pointer) => ({
    load: (i) => k.op("f32v.load_bf16", [pointer], i * 2 * k.lanes),
    scale: undefined,
  }),
};

/** ggml's block of 34 bytes: a half float, then 32 signed bytes. */
const q8_0: KvFormat = {
  name: "q8_0",
  blockValues: 32,
  registers: 1,
  isScaled: true,
  bytes: (values) => (values / 32) * 34,
  reader: (k) => (pointer) => ({
    load: (i) => k.op("f32v.from_i32v", [k.op("i32v.load_i8", [pointer], 2 + i * k.lanes)]),
    scale: splatHalf(k, pointer),
  }),
};

export const kvFormats: readonly KvFormat[] = [f32Rows, f16, bf16, q8_0, ...nibbleFormats];
