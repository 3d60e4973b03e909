// WGSL unpacks of the types with super-blocks of 256 values: the K types, with scales of sub-blocks of 16 or 32, and the
// ternary types.

import * as lanes from "./lanes.ts";
import type { BlockUnpack } from "./unpack.ts";

export const q2_k: BlockUnpack = {
  kind: "block",
  body: `
  let group = i >> 4u;
  let packed = byteAt(b + group);
  let word = wordAt(b + 16u + 32u * (group >> 3u) + 16u * (group & 1u) + (i & 15u));
  let quants = bytesOf((word >> (group & 6u)) & 0x03030303u);
  return halfAt(b + 80u) * f32(packed & 15u) * quants - halfAt(b + 82u) * f32(packed >> 4u);`,
};

export const q3_k: BlockUnpack = {
  kind: "block",
  body: `
  let group = i >> 4u;
  let low = (byteAt(b + 96u + (group & 7u)) >> (4u * (group >> 3u))) & 15u;
  let high = (byteAt(b + 104u + (group & 3u)) >> (2u * (group >> 2u))) & 3u;
  let scale = halfAt(b + 108u) * (f32(low | (high << 4u)) - 32.0);
  let at = 16u * (group & 1u) + (i & 15u);
  let pairs = (wordAt(b + 32u + 32u * (group >> 3u) + at) >> (group & 6u)) & 0x03030303u;
  let thirds = (wordAt(b + at) >> (group >> 1u)) & 0x01010101u;
  return scale * (bytesOf(pairs | (thirds << 2u)) - 4.0);`,
};

/** Scale and min of sub-block 0..7 of Q4_K and Q5_K: 6 bits each, in 12 bytes from b + 4 on. */
const affineScales = `
fn affineScales(b: u32, group: u32) -> vec2f {
  let at = b + 4u + (group & 3u);
  let first = byteAt(at);
  let second = byteAt(at + 4u);
  if (group < 4u) { return vec2f(f32(first & 63u), f32(second & 63u)); }
  let third = byteAt(at + 8u);
  return vec2f(
    f32((third & 15u) | ((first >> 6u) << 4u)),
    f32((third >> 4u) | ((second >> 6u) << 4u)));
}`;

export const q4_k: BlockUnpack = {
  kind: "block",
  tables: affineScales,
  body: `
  let group = i >> 5u;
  let scales = affineScales(b, group);
  let word = wordAt(b + 16u + 32u * (group >> 1u) + (i & 31u));
  let quants = bytesOf((word >> (4u * (group & 1u))) & 0x0f0f0f0fu);
  return halfAt(b) * scales.x * quants - halfAt(b + 2u) * scales.y;`,
  lane: lanes.q4_k,
};

export const q5_k: BlockUnpack = {
  kind: "block",
  tables: affineScales,
  body: `
  let group = i >> 5u;
  let scales = affineScales(b, group);
  let word = wordAt(b + 48u + 32u * (group >> 1u) + (i & 31u));
  let fifths = (wordAt(b + 16u + (i & 31u)) >> group) & 0x01010101u;
  let quants = bytesOf(((word >> (4u * (group & 1u))) & 0x0f0f0f0fu) | (fifths << 4u));
  return halfAt(b) * scales.x * quants - halfAt(b + 2u) * scales.y;`,
};

export const q6_k: BlockUnpack = {
  kind: "block",
  body: `
  let part = i >> 7u;
  let quarter = (i >> 5u) & 3u;
  let at = i & 31u;
  let low = (wordAt(b + 64u * part + 32u * (quarter & 1u) + at) >> (4u * (quarter >> 1u))) & 0x0f0f0f0fu;
  let high = (wordAt(b + 128u + 32u * part + at) >> (2u * quarter)) & 0x03030303u;
  let scaleByte = byteAt(b + 192u + 8u * part + 2u * quarter + (at >> 4u));
  let scale = narrowHalf(n) * f32(bitcast<i32>(scaleByte << 24u) >> 24u);
  return scale * (bytesOf(low | (high << 4u)) - 32.0);`,
  planes: { wide: 208, wideFrom: 0, narrow: 2, narrowFrom: 208 },
  lane: lanes.q6_k,
};

/** A byte has five base-3 digits: digit n is (byte * 3^n mod 256) * 3 / 256. */
export const tq1_0: BlockUnpack = {
  kind: "block",
  tables: "var<private> powersOf3: array<u32, 5> = array<u32, 5>(1u, 3u, 9u, 27u, 81u);",
  body: `
  var at = i & 31u;
  var digit = i >> 5u;
  if (i >= 160u) { at = 32u + (i & 15u); digit = (i - 160u) >> 4u; }
  if (i >= 240u) { at = 48u; digit = (i - 240u) >> 2u; }
  let word = wordAt(b + at);
  let rest = (((vec4u(word) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(255u)) * powersOf3[digit]) & vec4u(255u);
  return halfAt(b + 52u) * (vec4f((rest * 3u) >> vec4u(8u)) - 1.0);`,
};

export const tq2_0: BlockUnpack = {
  kind: "block",
  body: `
  let word = wordAt(b + 32u * (i >> 7u) + (i & 31u));
  let quants = (word >> (2u * ((i >> 5u) & 3u))) & 0x03030303u;
  return halfAt(b + 64u) * (bytesOf(quants) - 1.0);`,
};
