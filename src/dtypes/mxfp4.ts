// MXFP4: 4.25 bits a weight. The OCP microscaling format: 4-bit floats (E2M1) that share a power of two (E8M0).
//
// Block of 32 in 17 bytes:
//   u8 e        the shared scale is 2^(e - 127); as in ggml, 255 (NaN in the OCP paper) is read as 2^128
//   16 x u8     low nibble of byte j: weight j; high nibble: weight 16 + j
// The values below are twice those of E2M1, and the scale is halved to match: everything stays a small integer times a
// power of two. As in ggml, nibble 8 is plain zero, not minus zero.

import { nibblesAt } from "./block.ts";
import type { DType } from "./dtype.ts";
import { largestMagnitude } from "./float32-math.ts";

const f = Math.fround;

const values = Float32Array.of(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);

/** halfScale[e] = 2^(e - 128). */
const halfScale = Float32Array.from({ length: 256 }, (_, e) => 2 ** (e - 128));

export const mxfp4: DType = {
  name: "mxfp4",
  ggufId: 39,
  blockElems: 32,
  blockBytes: 17,
  activation: "q8_0",
  block: {
    kind: "quants",
    scale: { format: "e8m0_half", pieces: [{ bits: 8, at: 0 }] },
    quants: nibblesAt(1),
    codebook: { size: 1, points: () => values },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    for (let block = 0; block < blocks; block++) {
      const at = srcOffset + block * 17;
      const out = dstOffset + block * 32;
      const scale = halfScale[src[at]!]!;
      for (let j = 0; j < 16; j++) {
        const pair = src[at + 1 + j]!;
        dst[out + j] = values[pair & 15]! * scale;
        dst[out + 16 + j] = values[pair >> 4]! * scale;
      }
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks) {
    for (let block = 0; block < blocks; block++) {
      const at = dstOffset + block * 17;
      const from = srcOffset + block * 32;
      const exponent = exponentOf(Math.abs(largestMagnitude(src, from, 32)));
      const scale = halfScale[exponent]!;
      dst[at] = exponent;
      for (let j = 0; j < 16; j++) {
        dst[at + 1 + j] =
          nearest(src[from + j]!, scale) | (nearest(src[from + 16 + j]!, scale) << 4);
      }
    }
  },
};

/** The byte e for a largest magnitude, which becomes 4 to 8 of its units. An exponent too small for a byte wraps, as in C. */
function exponentOf(largest: number): number {
  // log2 in float32: just below a large power of two it is the power's own.
  return largest > 0 ? (Math.floor(f(Math.log2(largest))) - 2 + 127) & 255 : 0;
}

/** The nibble whose value is nearest; the first of two that are as near. Values of the other sign are never nearer than 0. */
function nearest(value: number, scale: number): number {
  const sign = value < 0 ? 8 : 0;
  let found = 0;
  let best = Math.abs(value);
  for (let nibble = sign + 1; nibble < sign + 8; nibble++) {
    const error = Math.abs(f(f(values[nibble]! * scale) - value));
    if (!(error < best)) continue;
    found = nibble;
    best = error;
  }
  return found;
}
