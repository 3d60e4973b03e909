// The types that lanes multiply 16 bytes at a time: which vectors of a chunk of a row a lane loads, the staged activations
// beside them, and their dot product. Activations are 8-bit quants (half floats beside F16, floats beside F32); dot products of
// quants are exact.
//
// A chunk is the columns of 16 bytes of quants: in the 4-bit types, the low nibbles are 16 columns and the high nibbles
// another 16.

import type { LaneDot } from "./unpack.ts";

const LOW = "vec4u(0x0f0f0f0fu)";

/** Blocks of 32: chunk c is block c. */
const small = {
  columns: 32,
  unit: 32,
  lowAt: "2u * c",
  highAt: "2u * c + 1u",
  scaleAt: "c",
};

/** The half float of a block, where a word holds the scales of two blocks. */
const half = (word: string, block: string): string =>
  `unpack2x16float(${word} >> (((${block}) & 1u) * 16u)).x`;

const nibbleDots = (w: string): string =>
  `dots(${w} & ${LOW}, low), dots((${w} >> vec4u(4u)) & ${LOW}, high)`;

/**
 * The last bit of a half float between 1024 and 2048 is worth 1. So nibbles and bytes become half floats, two at a time, by
 * adding the bits of that exponent and subtracting 1024 (and an offset), which is exact.
 */
const halfText = `
fn nibbles4(word: u32) -> vec4h {
  return vec4h(bitcast<vec2h>((word & 0x000f000fu) | 0x64006400u), bitcast<vec2h>(((word >> 8u) & 0x000f000fu) | 0x64006400u));
}
fn bytes4(word: u32) -> vec4h {
  return vec4h(bitcast<vec2h>((word & 0x00ff00ffu) | 0x64006400u), bitcast<vec2h>(((word >> 8u) & 0x00ff00ffu) | 0x64006400u));
}`;

/** Eight vectors: those of the low nibbles of four words, then those of the high ones. */
const nibbleHalves = (value: (nibbles: string, isHigh: boolean) => string): string => {
  const parts = ["x", "y", "z", "w"];
  const low = parts.map((part) => value(`nibbles4(w.${part})`, false));
  const high = parts.map((part) => value(`nibbles4(w.${part} >> 4u)`, true));
  return `array<vec4h, 8>(${[...low, ...high].join(", ")})`;
};

export const q4_0: LaneDot = {
  ...small,
  halves: {
    span: 32,
    functions: `${halfText}
fn q4_0Halves(w: vec4u, d: f16) -> array<vec4h, 8> {
  return ${nibbleHalves((n) => `(${n} - 1032.0h) * d`)};
}`,
    values: (v, row, c) => `q4_0Halves(${v("w")}, f16(${half(v("n"), `${row} + ${c}`)}))`,
  },
  smallBatch: {
    functions: `
fn centredBytes(nibbles: vec4u) -> vec4u { return ((nibbles | vec4u(0x80808080u)) - vec4u(0x08080808u)) ^ vec4u(0x80808080u); }`,
    low: (v) => `centredBytes(${v("w")} & ${LOW})`,
    high: (v) => `centredBytes((${v("w")} >> vec4u(4u)) & ${LOW})`,
  },
  loads: {
    w: { type: "vec4u", at: (row, c) => `wide[${row} + ${c}]` },
    n: { type: "u32", at: (row, c) => `narrow[(${row} + ${c}) >> 1u]` },
  },
  functions: `
fn centred(a: i32, b: i32, sum: i32) -> f32 { return f32(a + b - 8 * sum); }`,
  dot: (v) => `centred(${nibbleDots(v("w"))}, sumLow + sumHigh)`,
  factor: (v, row, c) => half(v("n"), `${row} + ${c}`),
};

export const q4_1: LaneDot = {
  ...small,
  halves: {
    span: 32,
    functions: `${halfText}
fn q4_1Halves(w: vec4u, d: vec2h) -> array<vec4h, 8> {
  return ${nibbleHalves((n) => `(${n} - 1024.0h) * d.x + d.y`)};
}`,
    values: (v) => `q4_1Halves(${v("w")}, bitcast<vec2h>(${v("n")}))`,
  },
  loads: {
    w: { type: "vec4u", at: (row, c) => `wide[${row} + ${c}]` },
    n: { type: "u32", at: (row, c) => `narrow[${row} + ${c}]` },
  },
  functions: `
fn affine(scales: vec2f, a: i32, b: i32, sum: i32) -> f32 { return fma(scales.x, f32(a + b), scales.y * f32(sum)); }`,
  dot: (v) => `affine(unpack2x16float(${v("n")}), ${nibbleDots(v("w"))}, sumLow + sumHigh)`,
};

export const q8_0: LaneDot = {
  ...small,
  halves: {
    span: 32,
    functions: `${halfText}
fn signed4(word: u32, d: f16) -> vec4h { return (bytes4(word ^ 0x80808080u) - 1152.0h) * d; }
fn q8_0Halves(w: vec4u, u: vec4u, d: f16) -> array<vec4h, 8> {
  return array<vec4h, 8>(
    signed4(w.x, d), signed4(w.y, d), signed4(w.z, d), signed4(w.w, d),
    signed4(u.x, d), signed4(u.y, d), signed4(u.z, d), signed4(u.w, d));
}`,
    values: (v, row, c) =>
      `q8_0Halves(${v("w")}, ${v("u")}, f16(${half(v("n"), `${row} + ${c}`)}))`,
  },
  smallBatch: {
    functions: "",
    low: (v) => v("w"),
    high: (v) => v("u"),
  },
  loads: {
    w: { type: "vec4u", at: (row, c) => `wide[2u * (${row} + ${c})]` },
    u: { type: "vec4u", at: (row, c) => `wide[2u * (${row} + ${c}) + 1u]` },
    n: { type: "u32", at: (row, c) => `narrow[(${row} + ${c}) >> 1u]` },
  },
  dot: (v) => `f32(dots(${v("w")}, low) + dots(${v("u")}, high))`,
  factor: (v, row, c) => half(v("n"), `${row} + ${c}`),
};

/**
 * `fn e2m1Bytes`: twice the 4-bit floats (E2M1) of nibbles, as signed bytes. Of the numbers m = 0 to 7 they are m, plus 0, 1, 2 and 5 from 4 on: m % 4, and 2
 * more for 7. Bytes from 0 to 24 are 12 more than that, so that nothing is carried from one to the next.
 */
const e2m1Text = `
fn e2m1Bytes(nibbles: vec4u) -> vec4u {
  let m = nibbles & vec4u(0x07070707u);
  let isLarge = (m >> vec4u(2u)) & vec4u(0x01010101u);
  let size = m + (m & (isLarge * 3u)) + ((m & (m >> vec4u(1u)) & isLarge) << vec4u(1u));
  let signs = ((nibbles >> vec4u(3u)) & vec4u(0x01010101u)) * 255u;
  let above = vec4u(0x0c0c0c0cu) + size - ((size & signs) << vec4u(1u));
  return ((above | vec4u(0x80808080u)) - vec4u(0x0c0c0c0cu)) ^ vec4u(0x80808080u);
}`;

/** `fn halfPower(e)`: half the power of two that a byte stands for (E8M0), 2^(e - 128); below the normal floats for e = 0 and 1. */
export const halfPowerText = `
fn halfPower(e: u32) -> f32 { return bitcast<f32>(select((e - 1u) << 23u, 0x200000u << e, e < 2u)); }`;

const e2m1Nibbles = {
  low: (v: (name: string) => string) => `e2m1Bytes(${v("w")} & ${LOW})`,
  high: (v: (name: string) => string) => `e2m1Bytes((${v("w")} >> vec4u(4u)) & ${LOW})`,
};

/**
 * `fn quarters`: a quarter of two 4-bit floats (E2M1), one in each half of a word, whose three bits of size lie at the end of the exponent and the beginning of
 * the mantissa of a half float. With 12 as the rest of the exponent these are 1/8, 3/16, 1/4, 3/8, 1/2 ...: right from the third on. The first two should be 0
 * and 1/8, as twice the number less 1/4. No half float is below the normal ones, which a device may take for 0.
 */
const quartersText = `
fn quarters(sizes: u32, signs: u32) -> vec2h {
  let h = bitcast<vec2h>((sizes & 0x0e000e00u) | 0x30003000u);
  let size = min(fma(h, vec2h(2.0h), vec2h(-0.25h)), h);
  return bitcast<vec2h>(bitcast<u32>(size) ^ (signs & 0x80008000u));
}`;

/** WGSL: those that begin at `bit` of each half of a word. */
const quarters = (word: string, bit: number): string => {
  const shifted = (by: number): string =>
    by === 0 ? word : `${word} ${by > 0 ? "<<" : ">>"} ${Math.abs(by)}u`;
  return `quarters(${shifted(9 - bit)}, ${shifted(12 - bit)})`;
};

export const mxfp4: LaneDot = {
  ...small,
  halves: {
    span: 32,
    functions: `${halfPowerText}${quartersText}
fn mxfp4Halves(w: vec4u, d: f16) -> array<vec4h, 8> {
  return array<vec4h, 8>(${[0, 4].flatMap((bit) => ["x", "y", "z", "w"].map((part) => `vec4h(${quarters(`w.${part}`, bit)}, ${quarters(`w.${part}`, bit + 8)}) * d`)).join(", ")});
}`,
    values: (v, row, c) =>
      `mxfp4Halves(${v("w")}, f16(8.0 * halfPower((${v("n")} >> (((${row} + ${c}) & 3u) * 8u)) & 255u)))`,
  },
  smallBatch: { functions: `${halfPowerText}${e2m1Text}`, ...e2m1Nibbles },
  loads: {
    w: { type: "vec4u", at: (row, c) => `wide[${row} + ${c}]` },
    n: { type: "u32", at: (row, c) => `narrow[(${row} + ${c}) >> 2u]` },
  },
  functions: `${halfPowerText}${e2m1Text}`,
  dot: (v) => `f32(dots(${e2m1Nibbles.low(v)}, low) + dots(${e2m1Nibbles.high(v)}, high))`,
  factor: (v, row, c) => `halfPower((${v("n")} >> (((${row} + ${c}) & 3u) * 8u)) & 255u)`,
};

/** Scales and mins of sub-blocks 2 pair and 2 pair + 1: those of the first four are 6 bits of a byte, the others are split. */
const pairScalesText = `
fn pairScales(h: vec4u, pair: u32) -> vec4f {
  let s = (pair & 1u) * 16u;
  let y = h.y >> s;
  let z = h.z >> s;
  let w = h.w >> s;
  let early = vec4u(y & 63u, (y >> 8u) & 63u, z & 63u, (z >> 8u) & 63u);
  let late = vec4u(
    (w & 15u) | ((y >> 2u) & 48u), ((w >> 8u) & 15u) | ((y >> 10u) & 48u),
    ((w >> 4u) & 15u) | ((z >> 2u) & 48u), ((w >> 12u) & 15u) | ((z >> 10u) & 48u));
  return vec4f(select(late, early, pair < 2u));
}`;

/** 9 vectors of 16 bytes: d, dmin and the packed scales of the sub-blocks, then nibbles of two half sub-blocks each. */
export const q4_k: LaneDot = {
  columns: 32,
  unit: 256,
  lowAt: "(c >> 3u) * 16u + ((c >> 1u) & 3u) * 4u + (c & 1u)",
  highAt: "lowAt + 2u",
  scaleAt: "c >> 3u",
  loads: {
    h: { type: "vec4u", at: (row, c) => `wide[9u * (${row} + (${c} >> 3u))]` },
    w: { type: "vec4u", at: (row, c) => `wide[9u * (${row} + (${c} >> 3u)) + 1u + (${c} & 7u)]` },
  },
  halves: {
    span: 64,
    functions: `${halfText}${pairScalesText}
fn q4_kHalves(h: vec4u, w: vec4u, pair: u32) -> array<vec4h, 8> {
  let d = unpack2x16float(h.x);
  let scales = pairScales(h, pair);
  let a = vec2h(d.x * scales.xy);
  let b = vec2h(d.y * scales.zw);
  return ${nibbleHalves((n, isHigh) => `(${n} - 1024.0h) * a.${isHigh ? "y" : "x"} - b.${isHigh ? "y" : "x"}`)};
}`,
    values: (v, _row, c) => `q4_kHalves(${v("h")}, ${v("w")}, (${c} >> 1u) & 3u)`,
  },
  functions: `${pairScalesText}
fn affineGroups(h: vec4u, pair: u32, a: i32, b: i32, sumLow: i32, sumHigh: i32) -> f32 {
  let scales = pairScales(h, pair);
  let d = unpack2x16float(h.x);
  // Products of scales and sums are exact: only the last sum could be rounded in two ways.
  return fma(d.x, scales.x * f32(a) + scales.y * f32(b), -d.y * (scales.z * f32(sumLow) + scales.w * f32(sumHigh)));
}`,
  dot: (v, _row, c) =>
    `affineGroups(${v("h")}, (${c} >> 1u) & 3u, ${nibbleDots(v("w"))}, sumLow, sumHigh)`,
};

/** 13 vectors: 8 of low bits, 4 of high bits, 1 of scales. Chunk c has 16 bytes of low bits, number c & 7 of the block. */
export const q6_k: LaneDot = {
  columns: 32,
  unit: 256,
  lowAt: "(c >> 3u) * 16u + ((c >> 2u) & 1u) * 8u + (c & 3u)",
  highAt: "lowAt + 4u",
  scaleAt: "c >> 3u",
  loads: {
    w: { type: "vec4u", at: (row, c) => `wide[13u * (${row} + (${c} >> 3u)) + (${c} & 7u)]` },
    u: {
      type: "vec4u",
      at: (row, c) =>
        `wide[13u * (${row} + (${c} >> 3u)) + 8u + ((${c} >> 2u) & 1u) * 2u + (${c} & 1u)]`,
    },
    s: { type: "vec4u", at: (row, c) => `wide[13u * (${row} + (${c} >> 3u)) + 12u]` },
    n: { type: "u32", at: (row, c) => `narrow[(${row} + (${c} >> 3u)) >> 1u]` },
  },
  functions: `
fn sixBits(w: vec4u, u: vec4u, s: vec4u, c: u32, low: vec4u, high: vec4u, sumLow: i32, sumHigh: i32) -> f32 {
  let shift = vec4u(c & 2u);
  let a = (w & ${LOW}) | (((u >> shift) & vec4u(0x03030303u)) << vec4u(4u));
  let b = ((w >> vec4u(4u)) & ${LOW}) | (((u >> (shift + vec4u(4u))) & vec4u(0x03030303u)) << vec4u(4u));
  let words = select(s.xy, s.zw, (c & 4u) != 0u);
  let scales = bitcast<vec2i>(words << vec2u(24u - 8u * (c & 3u))) >> vec2u(24u);
  return f32(scales.x * (dots(a, low) - 32 * sumLow) + scales.y * (dots(b, high) - 32 * sumHigh));
}`,
  dot: (v, _row, c) => `sixBits(${v("w")}, ${v("u")}, ${v("s")}, ${c}, low, high, sumLow, sumHigh)`,
  factor: (v, row, c) => half(v("n"), `${row} + (${c} >> 3u)`),
};

/** 8 values a vector; activations are staged as half floats. */
export const f16: LaneDot = {
  columns: 8,
  unit: 8,
  lowAt: "c",
  highAt: "c",
  scaleAt: "0u",
  halves: "as they are",
  loads: { w: { type: "vec4u", at: (row, c) => `wide[${row} + ${c}]` } },
  functions: `
fn halves(a: u32, b: u32) -> f32 { return dot(unpack2x16float(a), unpack2x16float(b)); }`,
  dot: (v) => {
    const each = ["x", "y", "z", "w"].map((part) => `halves(${v("w")}.${part}, low.${part})`);
    return `((${each[0]} + ${each[1]}) + (${each[2]} + ${each[3]}))`;
  },
};

/** 4 values a vector; activations stay floats. Without fma() a driver would be free to round a product by itself or not, in each kernel as it likes. */
export const f32: LaneDot = {
  columns: 4,
  unit: 4,
  lowAt: "c",
  highAt: "c",
  scaleAt: "0u",
  loads: { w: { type: "vec4u", at: (row, c) => `wide[${row} + ${c}]` } },
  functions: `
fn floats(w: vec4u, x: vec4u) -> f32 {
  let a = bitcast<vec4f>(w);
  let b = bitcast<vec4f>(x);
  return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, a.w * b.w)));
}`,
  dot: (v) => `floats(${v("w")}, low)`,
};
