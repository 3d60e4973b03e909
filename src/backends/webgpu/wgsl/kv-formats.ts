// The formats of keys and values in a GPU's cache, as a table. Only shaders of this folder read them, so a row of Q8_0 has all of its
// quants first, which are loaded 16 bytes at a time, and then the scales, each in a word of its own (36 bytes for 32 values instead
// of 34). Those of nibbles: kv-nibbles.ts.

import type { DType } from "../../../dtypes/dtype.ts";
import { BEYOND_HALF } from "./halves.ts";
import type { KvFormat, KvVectors } from "./kv-format.ts";
import { nibbleFormats } from "./kv-nibbles.ts";
import { planeRows } from "./kv-rows.ts";
import { packText } from "./round-activations.ts";

const nothingOnce = "fn onceOf(kept: Kept, lane: u32) -> vec4f { return vec4f(); }";

const floats: KvVectors = {
  values: 8,
  together: 8,
  declarations: `
struct Kept { low: vec4f, high: vec4f }
fn valuesOf(kept: Kept) -> mat2x4f { return mat2x4f(kept.low, kept.high); }`,
  keep: () => `
fn keptOf(values: mat2x4f, lane: u32) -> Kept { return Kept(values[0], values[1]); }
fn spoiled(value: Kept, key: Kept, values: mat2x4f, keys: mat2x4f) -> Kept { return value; }
${nothingOnce}`,
  load: (name) => `
fn ${name}At(first: u32, i: u32) -> Kept {
  let at = (first + i) / 4u;
  return Kept(bitcast<vec4f>(${name}[at]), bitcast<vec4f>(${name}[at + 1u]));
}`,
  store: (name) => `
fn ${name}Store(first: u32, i: u32, kept: Kept, once: vec4f) {
  let at = (first + i) / 4u;
  ${name}[at] = bitcast<vec4u>(kept.low);
  ${name}[at + 1u] = bitcast<vec4u>(kept.high);
}`,
};

const halves: KvVectors = {
  values: 8,
  together: 8,
  declarations: `
struct Kept { words: vec4u }
fn valuesOf(kept: Kept) -> mat2x4f {
  return mat2x4f(
    vec4f(unpack2x16float(kept.words.x), unpack2x16float(kept.words.y)),
    vec4f(unpack2x16float(kept.words.z), unpack2x16float(kept.words.w)));
}`,
  keep: () => `
fn keptOf(values: mat2x4f, lane: u32) -> Kept {
  return Kept(vec4u(
    packHalves(values[0].xy), packHalves(values[0].zw),
    packHalves(values[1].xy), packHalves(values[1].zw)));
}
fn isBeyond(values: mat2x4f) -> bool {
  return any(max(abs(values[0]), abs(values[1])) >= vec4f(${BEYOND_HALF}.0));
}
fn spoiled(value: Kept, key: Kept, values: mat2x4f, keys: mat2x4f) -> Kept {
  return Kept(value.words | vec4u(select(0u, 0x7e007e00u, isBeyond(values) || isBeyond(keys))));
}
${nothingOnce}`,
  load: (name) => `
fn ${name}At(first: u32, i: u32) -> Kept { return Kept(${name}[(first + i / 2u) / 4u]); }`,
  store: (name) => `
fn ${name}Store(first: u32, i: u32, kept: Kept, once: vec4f) { ${name}[(first + i / 2u) / 4u] = kept.words; }`,
  halves: `
fn halvesOf(kept: Kept) -> array<vec4u, 1> { return array(kept.words); }`,
};

/**
 * Bytes become floats by a mask and an exact fma, since conversions are slow: 2^23 and an integer below 2^16 is a float with the integer's
 * bits. Two lanes share a block. Four scales are a vector, and one lane stores them: if several
 * stored parts of it, they would race.
 */
const q8Vectors: KvVectors = {
  values: 16,
  together: 128,
  declarations: `
struct Kept { quants: vec4u, scale: f32 }
fn quants4(word: u32) -> vec4f {
  let bytes = word ^ 0x80808080u;
  let high = bytes >> 16u;
  let bits = vec4u(bytes & 0xffu, bytes & 0xff00u, high & 0xffu, high & 0xff00u) | vec4u(0x4b000000u);
  return fma(bitcast<vec4f>(bits), vec4f(1.0, 0.00390625, 1.0, 0.00390625), vec4f(-8388736.0, -32896.0, -8388736.0, -32896.0));
}
fn valuesOf(kept: Kept) -> mat4x4f {
  return mat4x4f(quants4(kept.quants.x), quants4(kept.quants.y), quants4(kept.quants.z), quants4(kept.quants.w));
}`,
  scale: (kept) => `${kept}.scale`,
  keep: (
    exchange,
  ) => `${exchange.reduce("largestOfBlock", 2, "max")}${exchange.collect("scalesOf")}${packText}
fn keptOf(values: mat4x4f, lane: u32) -> Kept {
  let own = max(max(largestOf(values[0]), largestOf(values[1])), max(largestOf(values[2]), largestOf(values[3])));
  let scale = largestOfBlock(own, lane) / 127.0;
  let inverse = select(0.0, 1.0 / scale, scale > 0.0);
  let quants = vec4u(
    packed(round(values[0] * inverse)), packed(round(values[1] * inverse)),
    packed(round(values[2] * inverse)), packed(round(values[3] * inverse)));
  return Kept(quants, nearestHalf(scale));
}
fn spoiled(value: Kept, key: Kept, values: mat4x4f, keys: mat4x4f) -> Kept {
  let isBeyond = max(value.scale, key.scale) >= ${BEYOND_HALF}.0;
  return Kept(value.quants, bitcast<f32>(bitcast<u32>(value.scale) | select(0u, 0x7fc00000u, isBeyond)));
}
fn onceOf(kept: Kept, lane: u32) -> vec4f { return scalesOf(kept.scale, lane); }`,
  load: (name, cols) => `
fn ${name}At(first: u32, i: u32) -> Kept {
  let scale = first + ${cols / 4}u + i / 32u;
  return Kept(${name}[(first + i / 4u) / 4u], bitcast<f32>(${name}[scale / 4u][scale % 4u]));
}`,
  store: (name, cols) => `
fn ${name}Store(first: u32, i: u32, kept: Kept, once: vec4f) {
  ${name}[(first + i / 4u) / 4u] = kept.quants;
  if (i % 128u == 0u) { ${name}[(first + ${cols / 4}u + i / 32u) / 4u] = bitcast<vec4u>(once); }
}`,
  halves: `
fn halves4(word: u32, scale: f16) -> vec2u {
  return bitcast<vec2u>(vec4h(bitcast<vec4i>(vec4u(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u)) * scale);
}
fn halvesOf(kept: Kept) -> array<vec4u, 2> {
  let scale = f16(kept.scale);
  return array(
    vec4u(halves4(kept.quants.x, scale), halves4(kept.quants.y, scale)),
    vec4u(halves4(kept.quants.z, scale), halves4(kept.quants.w, scale)));
}`,
};

const formats: Readonly<Record<string, KvFormat>> = {
  f32: {
    vectors: floats,
    unit: 1,
    unitWords: 1,
    store: (from, to) => `${to}[first + unit] = bitcast<u32>(${from}[source]);`,
    load4: (name) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let word = at + i;
  return bitcast<vec4f>(vec4u(${name}[word], ${name}[word + 1u], ${name}[word + 2u], ${name}[word + 3u]));
}`,
  },
  f16: {
    vectors: halves,
    beyond: BEYOND_HALF,
    unit: 2,
    unitWords: 1,
    store: (from, to) =>
      `${to}[first + unit] = packHalves(vec2f(${from}[source], ${from}[source + 1u]));`,
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
      `${to}[first + unit] = nearestBf16(${from}[source]) | (nearestBf16(${from}[source + 1u]) << 16u);`,
    load4: (name) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let a = ${name}[at + i / 2u];
  let b = ${name}[at + i / 2u + 1u];
  return bitcast<vec4f>(vec4u(a << 16u, a & 0xffff0000u, b << 16u, b & 0xffff0000u));
}`,
  },
  q8_0: {
    vectors: q8Vectors,
    unit: 32,
    unitWords: 9,
    beyond: 127 * BEYOND_HALF,
    spoiledWord: (cols) => `${cols / 4}u + unit`,
    rows: planeRows(32, 32),
    store: (from, to, cols) => `{
    var largest = 0.0;
    for (var j = 0u; j < 32u; j++) { largest = max(largest, abs(${from}[source + j])); }
    let scale = largest / 127.0;
    let inverse = select(0.0, 1.0 / scale, scale > 0.0);
    ${to}[first + ${cols / 4}u + unit] = bitcast<u32>(nearestHalf(scale));
    for (var word = 0u; word < 8u; word++) {
      var bytes = 0u;
      for (var j = 0u; j < 4u; j++) {
        let quant = i32(round(${from}[source + word * 4u + j] * inverse));
        bytes |= (bitcast<u32>(quant) & 255u) << (8u * j);
      }
      ${to}[first + unit * 8u + word] = bytes;
    }
  }`,
    load4: (name, cols) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let word = ${name}[at + i / 4u];
  let quants = bitcast<vec4i>(vec4u(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u);
  return bitcast<f32>(${name}[at + ${cols / 4}u + i / 32u]) * vec4f(quants);
}`,
  },
  ...nibbleFormats,
};

/** undefined: the GPU has no cache of this type. */
export function kvFormatOf(dtype: DType): KvFormat | undefined {
  return formats[dtype.name];
}
