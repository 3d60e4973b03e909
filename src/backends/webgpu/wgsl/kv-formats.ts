// The formats of keys and values in a GPU's cache, as a table. Only shaders of this folder read them, so a block of Q8_0 has its
// scale in a word of its own (36 bytes for 32 values instead of 34). Those of nibbles: kv-nibbles.ts.

import type { DType } from "../../../dtypes/dtype.ts";
import type { KvEights, KvFormat } from "./kv-format.ts";
import { nibbleFormats, scaledRows } from "./kv-nibbles.ts";

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
    isHalves: true,
    unit: 2,
    unitWords: 1,
    store: (from, to) => `${to}[at] = packHalves(vec2f(${from}[source], ${from}[source + 1u]));`,
    load4: (name) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let word = at + i / 2u;
  return vec4f(unpack2x16float(${name}[word]), unpack2x16float(${name}[word + 1u]));
}`,
  },
  bf16: {
    unit: 2,
    unitWords: 1,
    functions: [
      `
fn nearestBf16(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let nearest = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
  return select(nearest, (bits >> 16u) | 64u, (bits & 0x7fffffffu) > 0x7f800000u);
}`,
    ],
    store: (from, to) =>
      `${to}[at] = nearestBf16(${from}[source]) | (nearestBf16(${from}[source + 1u]) << 16u);`,
    load4: (name) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let a = ${name}[at + i / 2u];
  let b = ${name}[at + i / 2u + 1u];
  return bitcast<vec4f>(vec4u(a << 16u, a & 0xffff0000u, b << 16u, b & 0xffff0000u));
}`,
  },
  q8_0: {
    unit: 32,
    unitWords: 9,
    rows: scaledRows(32),
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
  ...nibbleFormats,
};

/** undefined: the GPU has no cache of this type. */
export function kvFormatOf(dtype: DType): KvFormat | undefined {
  return formats[dtype.name];
}
