// The formats of keys and values in the cache: rows of whole words, one row per token. Only shaders of this folder read them,
// so a block of Q8_0 has its scale in a word of its own (36 bytes for 32 values instead of 34).

import { f16ToF32, f32ToF16 } from "../../../base/half.ts";
import type { DType } from "../../../dtypes/dtype.ts";

export interface KvFormat {
  /** Values that one thread writes: a multiple of whole words. */
  readonly unit: number;
  /** Words of a unit. */
  readonly unitWords: number;
  /** With `nearestHalfText`: WGSL that writes unit `u` of `from` (an array of floats, at value `source`) to word `at` of `to`. */
  store(from: string, to: string): string;
  /** WGSL that `store` calls. */
  readonly functions?: string;
  /** WGSL of `fn NAME4(at: u32, i: u32) -> vec4f`: values i ... i + 3 of the row at word `at`; i is a multiple of 4. */
  load4(name: string): string;
  /** Between a row here and in the type's own form; undefined: they are the same bytes. */
  readonly rows?: KvRows;
  /** For kernels that read and write 8 values at a time; undefined: it has none. */
  readonly eights?: KvEights;
}

/** Bytes of whole rows, from one form to the other. */
export interface KvRows {
  toOwn(here: Uint8Array, own: Uint8Array): void;
  fromOwn(own: Uint8Array, here: Uint8Array): void;
}

/** Over `NAME: array<vec4u>`; i is a multiple of 8, and rows are whole vectors. */
export interface KvEights {
  /** WGSL of `fn NAME8(at: u32, i: u32) -> mat2x4f`. */
  load(name: string): string;
  /** With `nearestHalfText`: WGSL of `fn NAMEStore8(at: u32, i: u32, eight: mat2x4f)`. */
  store(name: string): string;
  /** With `nearestHalfText`: WGSL of `fn kept8(values: mat2x4f) -> mat2x4f`: the values as the cache would return them. */
  readonly kept: string;
}

const floats: KvEights = {
  load: (name) => `
fn ${name}8(at: u32, i: u32) -> mat2x4f {
  let first = (at + i) / 4u;
  return mat2x4f(bitcast<vec4f>(${name}[first]), bitcast<vec4f>(${name}[first + 1u]));
}`,
  store: (name) => `
fn ${name}Store8(at: u32, i: u32, eight: mat2x4f) {
  let first = (at + i) / 4u;
  ${name}[first] = bitcast<vec4u>(eight[0]);
  ${name}[first + 1u] = bitcast<vec4u>(eight[1]);
}`,
  kept: `
fn kept8(values: mat2x4f) -> mat2x4f { return values; }`,
};

const halves: KvEights = {
  load: (name) => `
fn ${name}8(at: u32, i: u32) -> mat2x4f {
  let words = ${name}[(at + i / 2u) / 4u];
  return mat2x4f(
    vec4f(unpack2x16float(words.x), unpack2x16float(words.y)),
    vec4f(unpack2x16float(words.z), unpack2x16float(words.w)));
}`,
  store: (name) => `
fn ${name}Store8(at: u32, i: u32, eight: mat2x4f) {
  ${name}[(at + i / 2u) / 4u] = vec4u(
    packHalves(eight[0].xy), packHalves(eight[0].zw),
    packHalves(eight[1].xy), packHalves(eight[1].zw));
}`,
  kept: `
fn kept4(values: vec4f) -> vec4f {
  return vec4f(nearestHalf(values.x), nearestHalf(values.y), nearestHalf(values.z), nearestHalf(values.w));
}
fn kept8(values: mat2x4f) -> mat2x4f { return mat2x4f(kept4(values[0]), kept4(values[1])); }`,
};

/** 4 bytes of a scale as a float and 32 quants here; a half and 32 quants there. */
const q8Rows: KvRows = {
  toOwn(here, own) {
    const [from, to] = [viewOf(here), viewOf(own)];
    for (let at = 0, out = 0; at < here.length; at += 36, out += 34) {
      to.setUint16(out, f32ToF16(from.getFloat32(at, true)), true);
      own.set(here.subarray(at + 4, at + 36), out + 2);
    }
  },
  fromOwn(own, here) {
    const [from, to] = [viewOf(own), viewOf(here)];
    for (let at = 0, out = 0; at < own.length; at += 34, out += 36) {
      to.setFloat32(out, f16ToF32[from.getUint16(at, true)]!, true);
      here.set(own.subarray(at + 2, at + 34), out + 4);
    }
  },
};

function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}

const formats: Readonly<Record<string, KvFormat>> = {
  f32: {
    eights: floats,
    unit: 1,
    unitWords: 1,
    store: (from, to) => `${to}[at] = bitcast<u32>(${from}[source]);`,
    load4: (name) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let word = at + i;
  return bitcast<vec4f>(vec4u(${name}[word], ${name}[word + 1u], ${name}[word + 2u], ${name}[word + 3u]));
}`,
  },
  f16: {
    eights: halves,
    unit: 2,
    unitWords: 1,
    store: (from, to) => `${to}[at] = packHalves(vec2f(${from}[source], ${from}[source + 1u]));`,
    load4: (name) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let word = at + i / 2u;
  return vec4f(unpack2x16float(${name}[word]), unpack2x16float(${name}[word + 1u]));
}`,
  },
  q8_0: {
    unit: 32,
    unitWords: 9,
    rows: q8Rows,
    store: (from, to) => `{
    var largest = 0.0;
    for (var j = 0u; j < 32u; j++) { largest = max(largest, abs(${from}[source + j])); }
    let scale = largest / 127.0;
    let inverse = select(0.0, 1.0 / scale, scale > 0.0);
    ${to}[at] = bitcast<u32>(nearestHalf(scale));
    for (var word = 0u; word < 8u; word++) {
      var bytes = 0u;
      for (var j = 0u; j < 4u; j++) {
        let quant = i32(round(${from}[source + word * 4u + j] * inverse));
        bytes |= (bitcast<u32>(quant) & 255u) << (8u * j);
      }
      ${to}[at + 1u + word] = bytes;
    }
  }`,
    load4: (name) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let block = at + (i / 32u) * 9u;
  let word = ${name}[block + 1u + (i % 32u) / 4u];
  let quants = bitcast<vec4i>(vec4u(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u);
  return bitcast<f32>(${name}[block]) * vec4f(quants);
}`,
  },
};

/** undefined: the GPU has no cache of this type. */
export function kvFormatOf(dtype: DType): KvFormat | undefined {
  return formats[dtype.name];
}

/** Words of one token's keys, or values, in one layer. */
export function kvRowWords(format: KvFormat, cols: number): number {
  return (cols / format.unit) * format.unitWords;
}
