// WGSL unpacks of the types with blocks of 32 values, of Q8_K, and of floats.

import * as lanes from "./lanes.ts";
import type { BlockUnpack, ElementUnpack } from "./unpack.ts";

export const f32: ElementUnpack = {
  kind: "element",
  body: "return bitcast<f32>(weights[i]);",
  lane: lanes.f32,
};

export const f16: ElementUnpack = {
  kind: "element",
  body: "return halfAt(i * 2u);",
  lane: lanes.f16,
};

export const bf16: ElementUnpack = {
  kind: "element",
  body: "return bitcast<f32>(u16At(i * 2u) << 16u);",
};

/** Values 0..15 of a block are the low nibbles of its 16 bytes, 16..31 the high ones. */
const nibbles = (at: string): string =>
  `let quants = (wordAt(${at} + (i & 15u)) >> ((i >> 4u) * 4u)) & 0x0f0f0f0fu;`;

export const q4_0: BlockUnpack = {
  kind: "block",
  body: `
  ${nibbles("b")}
  return narrowHalf(n) * (bytesOf(quants) - 8.0);`,
  planes: { wide: 16, wideFrom: 2, narrow: 2, narrowFrom: 0 },
  lane: lanes.q4_0,
};

export const q4_1: BlockUnpack = {
  kind: "block",
  body: `
  ${nibbles("b")}
  return narrowHalf(2u * n) * bytesOf(quants) + narrowHalf(2u * n + 1u);`,
  planes: { wide: 16, wideFrom: 4, narrow: 4, narrowFrom: 0 },
  lane: lanes.q4_1,
};

export const q5_0: BlockUnpack = {
  kind: "block",
  body: `
  ${nibbles("b + 6u")}
  let fifths = bitsOf(wordAt(b + 2u) >> i);
  return halfAt(b) * (bytesOf(quants) + 16.0 * fifths - 16.0);`,
};

export const q5_1: BlockUnpack = {
  kind: "block",
  body: `
  ${nibbles("b + 8u")}
  let fifths = bitsOf(wordAt(b + 4u) >> i);
  return halfAt(b) * (bytesOf(quants) + 16.0 * fifths) + halfAt(b + 2u);`,
};

export const q8_0: BlockUnpack = {
  kind: "block",
  body: "return narrowHalf(n) * signedBytesOf(wordAt(b + i));",
  planes: { wide: 32, wideFrom: 2, narrow: 2, narrowFrom: 0 },
  lane: lanes.q8_0,
};

export const q8_1: BlockUnpack = {
  kind: "block",
  body: "return halfAt(b) * signedBytesOf(wordAt(b + 4u + i));",
};

export const q8_k: BlockUnpack = {
  kind: "block",
  body: "return bitcast<f32>(wordAt(b)) * signedBytesOf(wordAt(b + 4u + i));",
};

/** The 16 unevenly spaced values of IQ4_NL and IQ4_XS. */
const nonlinear = `
var<private> nonlinear: array<f32, 16> = array<f32, 16>(
  -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0);
fn nonlinearOf(quants: u32) -> vec4f {
  return vec4f(
    nonlinear[quants & 15u], nonlinear[(quants >> 8u) & 15u],
    nonlinear[(quants >> 16u) & 15u], nonlinear[(quants >> 24u) & 15u]);
}`;

export const iq4_nl: BlockUnpack = {
  kind: "block",
  tables: nonlinear,
  body: `
  ${nibbles("b + 2u")}
  return halfAt(b) * nonlinearOf(quants);`,
};

export const iq4_xs: BlockUnpack = {
  kind: "block",
  tables: nonlinear,
  body: `
  let group = i >> 5u;
  let low = (byteAt(b + 4u + (group >> 1u)) >> (4u * (group & 1u))) & 15u;
  let high = (u16At(b + 2u) >> (2u * group)) & 3u;
  let scale = halfAt(b) * (f32(low | (high << 4u)) - 32.0);
  let quants = (wordAt(b + 8u + 16u * group + (i & 15u)) >> (((i >> 4u) & 1u) * 4u)) & 0x0f0f0f0fu;
  return scale * nonlinearOf(quants);`,
};

export const mxfp4: BlockUnpack = {
  kind: "block",
  tables: `${lanes.halfPowerText}
var<private> e2m1: array<f32, 16> = array<f32, 16>(
  0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0);`,
  body: `
  ${nibbles("b")}
  return halfPower(narrowByte(n)) * vec4f(
    e2m1[quants & 15u], e2m1[(quants >> 8u) & 15u],
    e2m1[(quants >> 16u) & 15u], e2m1[(quants >> 24u) & 15u]);`,
  planes: { wide: 16, wideFrom: 1, narrow: 1, narrowFrom: 0 },
  lane: lanes.mxfp4,
};
