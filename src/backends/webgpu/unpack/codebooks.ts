// WGSL unpacks of the IQ1, IQ2 and IQ3 types: points of a codebook with signs, a shift, and scales.

import {
  type Codebook,
  iq1sCodebook,
  iq2sCodebook,
  iq2xsCodebook,
  iq2xxsCodebook,
  iq3sCodebook,
  iq3xxsCodebook,
} from "../../../dtypes/codebooks.ts";
import type { BlockUnpack } from "./unpack.ts";

/** Four values of a point in a word, as signed bytes; made by the first call, and the same array from then on. */
function packed(points: Codebook): () => Uint32Array {
  let words: Uint32Array | undefined;
  return () => {
    words ??= new Uint32Array(Int8Array.from(points()).buffer);
    return words;
  };
}

/** IQ1_S and IQ1_M share a codebook. */
const iq1Book = packed(iq1sCodebook);

/** Signs of four values: bit j of `bits`, from bit i & 4 on, is set where value j is negative. */
const signs = `
fn signsOf(bits: u32, i: u32) -> vec4f {
  return 1.0 - 2.0 * bitsOf(bits >> (i & 4u));
}
fn withParity(bits: u32) -> u32 {
  return bits | ((countOneBits(bits) & 1u) << 7u);
}`;

export const iq2_xxs: BlockUnpack = {
  kind: "block",
  book: packed(iq2xxsCodebook),
  tables: signs,
  body: `
  let at = b + 2u + 8u * (i >> 5u);
  let tail = wordAt(at + 4u);
  let eight = (i >> 3u) & 3u;
  let point = book[byteAt(at + eight) * 2u + ((i >> 2u) & 1u)];
  let scale = halfAt(b) * (0.5 + f32(tail >> 28u)) * 0.25;
  return scale * signedBytesOf(point) * signsOf(withParity((tail >> (7u * eight)) & 127u), i);`,
};

export const iq2_xs: BlockUnpack = {
  kind: "block",
  book: packed(iq2xsCodebook),
  tables: signs,
  body: `
  let code = u16At(b + 2u + 2u * (i >> 3u));
  let nibble = (byteAt(b + 66u + (i >> 5u)) >> (4u * ((i >> 4u) & 1u))) & 15u;
  let point = book[(code & 511u) * 2u + ((i >> 2u) & 1u)];
  let scale = halfAt(b) * (0.5 + f32(nibble)) * 0.25;
  return scale * signedBytesOf(point) * signsOf(withParity(code >> 9u), i);`,
};

export const iq2_s: BlockUnpack = {
  kind: "block",
  book: packed(iq2sCodebook),
  tables: signs,
  body: `
  let eight = i >> 3u;
  let group = i >> 5u;
  let nibble = (byteAt(b + 74u + group) >> (2u * (eight & 2u))) & 15u;
  let high = (byteAt(b + 66u + group) >> (2u * (eight & 3u))) & 3u;
  let point = book[(byteAt(b + 2u + eight) | (high << 8u)) * 2u + ((i >> 2u) & 1u)];
  let scale = halfAt(b) * (0.5 + f32(nibble)) * 0.25;
  return scale * signedBytesOf(point) * signsOf(byteAt(b + 34u + eight), i);`,
};

export const iq3_xxs: BlockUnpack = {
  kind: "block",
  book: packed(iq3xxsCodebook),
  tables: signs,
  body: `
  let tail = wordAt(b + 66u + 4u * (i >> 5u));
  let point = book[byteAt(b + 2u + (i >> 2u))];
  let scale = halfAt(b) * (0.5 + f32(tail >> 28u)) * 0.5;
  let bits = (tail >> (7u * ((i >> 3u) & 3u))) & 127u;
  return scale * signedBytesOf(point) * signsOf(withParity(bits), i);`,
};

export const iq3_s: BlockUnpack = {
  kind: "block",
  book: packed(iq3sCodebook),
  tables: signs,
  body: `
  let group = i >> 5u;
  let nibble = (byteAt(b + 106u + (group >> 1u)) >> (4u * (group & 1u))) & 15u;
  let high = (byteAt(b + 66u + group) >> ((i >> 2u) & 7u)) & 1u;
  let point = book[byteAt(b + 2u + (i >> 2u)) | (high << 8u)];
  let scale = halfAt(b) * (1.0 + 2.0 * f32(nibble));
  return scale * signedBytesOf(point) * signsOf(byteAt(b + 74u + (i >> 3u)), i);`,
};

export const iq1_s: BlockUnpack = {
  kind: "block",
  book: iq1Book,
  body: `
  let high = u16At(b + 34u + 2u * (i >> 5u));
  let eight = i >> 3u;
  let index = byteAt(b + 2u + eight) | (((high >> (3u * (eight & 3u))) & 7u) << 8u);
  let scale = halfAt(b) * (2.0 * f32((high >> 12u) & 7u) + 1.0);
  let shift = select(0.125, -0.125, (high & 0x8000u) != 0u);
  return scale * (signedBytesOf(book[index * 2u + ((i >> 2u) & 1u)]) + shift);`,
};

export const iq1_m: BlockUnpack = {
  kind: "block",
  book: iq1Book,
  body: `
  let d = half((byteAt(b + 49u) >> 4u) | (byteAt(b + 51u) & 0xf0u)
    | ((byteAt(b + 53u) & 0xf0u) << 4u) | ((byteAt(b + 55u) & 0xf0u) << 8u));
  let eight = i >> 3u;
  let scales = u16At(b + 48u + 2u * (eight >> 3u));
  let scale = d * (2.0 * f32((scales >> (3u * ((eight >> 1u) & 3u))) & 7u) + 1.0);
  let high = byteAt(b + 32u + (eight >> 1u)) >> (4u * (eight & 1u));
  let index = byteAt(b + eight) | ((high & 7u) << 8u);
  let shift = select(0.125, -0.125, (high & 8u) != 0u);
  return scale * (signedBytesOf(book[index * 2u + ((i >> 2u) & 1u)]) + shift);`,
};
