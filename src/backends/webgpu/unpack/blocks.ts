// Types of small blocks (32 values) and of single values.

import type { BlockUnpack, ElementUnpack } from "./unpack.ts";

export const f32: ElementUnpack = {
  kind: "element",
  body: "return bitcast<f32>(weights[i]);",
};

export const f16: ElementUnpack = { kind: "element", body: "return halfAt(i * 2u);" };

export const bf16: ElementUnpack = {
  kind: "element",
  body: "return bitcast<f32>(u16At(i * 2u) << 16u);",
};

/** Values 0..15 of a block are the low nibbles of its 16 bytes, 16..31 the high ones. */
const nibbles = (at: string): string =>
  `let levels = (wordAt(${at} + (i & 15u)) >> ((i >> 4u) * 4u)) & 0x0f0f0f0fu;`;

export const q4_0: BlockUnpack = {
  kind: "block",
  body: `
  ${nibbles("b + 2u")}
  return halfAt(b) * (bytesOf(levels) - 8.0);`,
  dot32: `
  let levels = wordsAt(b + 2u);
  let sum = dotBytes(levels & vec4u(0x0f0f0f0fu), 0u) + dotBytes((levels >> vec4u(4u)) & vec4u(0x0f0f0f0fu), 4u);
  return halfAt(b) * (sum - 8.0 * xTotal);`,
};

export const q4_1: BlockUnpack = {
  kind: "block",
  body: `
  ${nibbles("b + 4u")}
  return halfAt(b) * bytesOf(levels) + halfAt(b + 2u);`,
  dot32: `
  let levels = wordsAt(b + 4u);
  let sum = dotBytes(levels & vec4u(0x0f0f0f0fu), 0u) + dotBytes((levels >> vec4u(4u)) & vec4u(0x0f0f0f0fu), 4u);
  return halfAt(b) * sum + halfAt(b + 2u) * xTotal;`,
};

export const q5_0: BlockUnpack = {
  kind: "block",
  body: `
  ${nibbles("b + 6u")}
  let fifths = bitsOf(wordAt(b + 2u) >> i);
  return halfAt(b) * (bytesOf(levels) + 16.0 * fifths - 16.0);`,
};

export const q5_1: BlockUnpack = {
  kind: "block",
  body: `
  ${nibbles("b + 8u")}
  let fifths = bitsOf(wordAt(b + 4u) >> i);
  return halfAt(b) * (bytesOf(levels) + 16.0 * fifths) + halfAt(b + 2u);`,
};

export const q8_0: BlockUnpack = {
  kind: "block",
  body: "return halfAt(b) * signedBytesOf(wordAt(b + 2u + i));",
  dot32: `
  let low = wordsAt(b + 2u);
  let high = wordsAt(b + 18u);
  var sum = 0.0;
  ${[0, 1, 2, 3].map((j) => `sum += dot(signedBytesOf(low[${j}]), xs[${j}]) + dot(signedBytesOf(high[${j}]), xs[${j + 4}]);`).join("\n  ")}
  return halfAt(b) * sum;`,
};

export const q8_1: BlockUnpack = {
  kind: "block",
  body: "return halfAt(b) * signedBytesOf(wordAt(b + 4u + i));",
};

export const q8_k: BlockUnpack = {
  kind: "block",
  body: "return bitcast<f32>(wordAt(b)) * signedBytesOf(wordAt(b + 4u + i));",
};

/** The 16 unevenly spaced values of the "nonlinear" types. */
const nonlinear = `
var<private> nonlinear: array<f32, 16> = array<f32, 16>(
  -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0);
fn nonlinearOf(levels: u32) -> vec4f {
  return vec4f(
    nonlinear[levels & 15u], nonlinear[(levels >> 8u) & 15u],
    nonlinear[(levels >> 16u) & 15u], nonlinear[(levels >> 24u) & 15u]);
}`;

export const iq4_nl: BlockUnpack = {
  kind: "block",
  tables: nonlinear,
  body: `
  ${nibbles("b + 2u")}
  return halfAt(b) * nonlinearOf(levels);`,
};

export const iq4_xs: BlockUnpack = {
  kind: "block",
  tables: nonlinear,
  body: `
  let group = i >> 5u;
  let low = (byteAt(b + 4u + (group >> 1u)) >> (4u * (group & 1u))) & 15u;
  let high = (u16At(b + 2u) >> (2u * group)) & 3u;
  let scale = halfAt(b) * (f32(low | (high << 4u)) - 32.0);
  let levels = (wordAt(b + 8u + 16u * group + (i & 15u)) >> (((i >> 4u) & 1u) * 4u)) & 0x0f0f0f0fu;
  return scale * nonlinearOf(levels);`,
};

export const mxfp4: BlockUnpack = {
  kind: "block",
  tables: `
var<private> e2m1: array<f32, 16> = array<f32, 16>(
  0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0);`,
  body: `
  ${nibbles("b + 1u")}
  // Half the block's power of two, 2^(e - 128); below the normal floats for e = 0 and 1.
  let e = byteAt(b);
  let scale = bitcast<f32>(select((e - 1u) << 23u, 0x200000u << e, e < 2u));
  return scale * vec4f(
    e2m1[levels & 15u], e2m1[(levels >> 8u) & 15u],
    e2m1[(levels >> 16u) & 15u], e2m1[(levels >> 24u) & 15u]);`,
};
