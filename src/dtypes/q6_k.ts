// Q6_K: super-blocks of 256 values as 6-bit quants around 32, in 16 sub-blocks with signed 8-bit scales.
//
//   block, 210 bytes: 128 bytes of low nibbles | 64 bytes of upper 2 bits | 16 x int8 scale | d f16
//   value = d * scale[sub-block] * (q - 32); the products are exact in float32
// Each half of 128 values is four groups of 32. Groups 0 and 2 share the first 32 bytes of nibbles, groups 1 and 3 the
// second. Byte i of the upper bits holds two bits of value i of each group.

import { f16ToF32 } from "../base/half.ts";
import { halfAt, twoBitsAt } from "./block.ts";
import { plainSearch, searchedElems } from "./block-search.ts";
import type { DType } from "./dtype.ts";
import { clamp, nearestInt, storeF16 } from "./float32-math.ts";
import { newFits, symmetricQuantsOf, zeroBlock } from "./scale-search.ts";

const f = Math.fround;

const quants = new Int8Array(256);
const weights = new Float32Array(searchedElems);
const fits = newFits(searchedElems / 16);

export const q6_k: DType = {
  name: "q6_k",
  ggufId: 14,
  blockElems: 256,
  blockBytes: 210,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(208),
    scales: { per: 16, pieces: [{ bits: 8, at: 8 * 192, strides: [[16, 8]] }], isSigned: true },
    quants: {
      per: 1,
      pieces: [
        {
          bits: 4,
          at: 0,
          strides: [
            [32, 8],
            [2, 256],
            [2, 4],
            [2, 512],
          ],
        },
        twoBitsAt(128, 4),
      ],
    },
    offset: -32,
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const d = f16ToF32(src[from + 208]! | (src[from + 209]! << 8));
      for (let half = 0; half < 2; half++) {
        for (let part = 0; part < 2; part++) {
          const scaleAt = from + 192 + 8 * half + part;
          const scale0 = d * ((src[scaleAt]! << 24) >> 24);
          const scale1 = d * ((src[scaleAt + 2]! << 24) >> 24);
          const scale2 = d * ((src[scaleAt + 4]! << 24) >> 24);
          const scale3 = d * ((src[scaleAt + 6]! << 24) >> 24);
          const lowAt = from + 64 * half + 16 * part;
          const highAt = from + 128 + 32 * half + 16 * part;
          for (let i = 0; i < 16; i++) {
            const even = src[lowAt + i]!;
            const odd = src[lowAt + 32 + i]!;
            const high = src[highAt + i]!;
            const at = to + 16 * part + i;
            dst[at] = scale0 * (((even & 15) | ((high & 3) << 4)) - 32);
            dst[at + 32] = scale1 * (((odd & 15) | ((high & 12) << 2)) - 32);
            dst[at + 64] = scale2 * (((even >> 4) | (high & 48)) - 32);
            dst[at + 96] = scale3 * (((odd >> 4) | ((high & 192) >> 2)) - 32);
          }
        }
        to += 128;
      }
      from += 210;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search = plainSearch) {
    const atOnce = searchedElems / 256;
    for (let first = 0; first < blocks; first += atOnce) {
      const count = Math.min(atOnce, blocks - first);
      const from = srcOffset + 256 * first;
      if (importance) {
        for (let i = 0; i < 256 * count; i++) {
          weights[i] = importance[(256 * first + i) % importance.length]!;
        }
      }
      search.symmetric(src, from, 16, 16 * count, 32, importance && weights, fits);
      for (let block = 0; block < count; block++) {
        const to = dstOffset + 210 * (first + block);
        if (chooseQuants(src, from + 256 * block, dst, to, 16 * block)) packQuants(dst, to);
        else dst.fill(0, to, to + 210);
      }
    }
  },
};

/** Stores the scales and fills `quants`; false if all values are (almost) zero. */
function chooseQuants(
  src: Float32Array,
  from: number,
  dst: Uint8Array,
  to: number,
  firstFit: number,
): boolean {
  let largest = 0;
  for (let subBlock = 0; subBlock < 16; subBlock++) {
    const scale = fits.scales[firstFit + subBlock]!;
    if (Math.abs(scale) > Math.abs(largest)) largest = scale;
  }
  if (Math.abs(largest) < zeroBlock) return false;

  const inverse = f(-128 / largest);
  const d = f16ToF32(storeF16(dst, to + 208, f(1 / inverse)));
  for (let subBlock = 0; subBlock < 16; subBlock++) {
    const stored = Math.min(127, nearestInt(f(inverse * fits.scales[firstFit + subBlock]!)));
    dst[to + 192 + subBlock] = stored;
    const scale = f(d * ((stored << 24) >> 24));
    if (scale === 0) {
      const at = 16 * subBlock;
      symmetricQuantsOf(fits, firstFit + subBlock, src, from + at, 16, 32, quants, at);
      continue;
    }
    for (let i = 16 * subBlock; i < 16 * subBlock + 16; i++) {
      quants[i] = clamp(nearestInt(f(src[from + i]! / scale)), -32, 31) + 32;
    }
  }
  return true;
}

function packQuants(dst: Uint8Array, to: number): void {
  for (let half = 0; half < 2; half++) {
    for (let i = 0; i < 32; i++) {
      const at = 128 * half + i;
      const run0 = quants[at]!;
      const run1 = quants[at + 32]!;
      const run2 = quants[at + 64]!;
      const run3 = quants[at + 96]!;
      dst[to + 64 * half + i] = (run0 & 15) | ((run2 & 15) << 4);
      dst[to + 64 * half + 32 + i] = (run1 & 15) | ((run3 & 15) << 4);
      dst[to + 128 + 32 * half + i] =
        (run0 >> 4) | ((run1 >> 4) << 2) | ((run2 >> 4) << 4) | ((run3 >> 4) << 6);
    }
  }
}
