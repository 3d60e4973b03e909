// Q5_0: 32 values as 5-bit levels around 16, times one half-float scale.
//
//   block, 22 bytes: scale f16 | 32 fifth bits, value i at bit i | 16 bytes of nibbles as in q4_0
//   value = scale * (q - 16)

import { f16ToF32 } from "../base/half.ts";
import { packFifthBits, packNibbles, weighBlocks } from "./blocks-of-32.ts";
import type { DType } from "./dtype.ts";
import { largestMagnitude, reciprocalOrZero, storeF16 } from "./float32-steps.ts";
import { plainSearch, searchedElems } from "./group-search.ts";
import { newFits, symmetricLevelsOf } from "./scale-search.ts";

const levels = new Int8Array(32);
/** Blocks that are searched at a time. */
const searchedBlocks = searchedElems / 32;
const weights = new Float32Array(searchedElems);
const fits = newFits(searchedBlocks);

export const q5_0: DType = {
  name: "q5_0",
  ggufId: 6,
  blockElems: 32,
  blockBytes: 22,
  activation: "q8_0",

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const scale = f16ToF32[src[from]! | (src[from + 1]! << 8)]!;
      const fifthLow = src[from + 2]! | (src[from + 3]! << 8);
      const fifthHigh = src[from + 4]! | (src[from + 5]! << 8);
      for (let i = 0; i < 16; i++) {
        const pair = src[from + 6 + i]!;
        dst[to + i] = scale * (((pair & 15) | (((fifthLow >> i) & 1) << 4)) - 16);
        dst[to + 16 + i] = scale * (((pair >> 4) | (((fifthHigh >> i) & 1) << 4)) - 16);
      }
      from += 22;
      to += 32;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search = plainSearch) {
    for (let block = 0; block < blocks; block++) {
      const from = srcOffset + 32 * block;
      const to = dstOffset + 22 * block;
      let scale: number;
      if (importance === undefined) {
        scale = plainLevels(src, from);
      } else {
        const index = block % searchedBlocks;
        if (index === 0) {
          const count = Math.min(searchedBlocks, blocks - block);
          weighBlocks(weights, importance, src, srcOffset, block, count);
          search.symmetric(src, from, 32, count, 16, weights, fits);
        }
        symmetricLevelsOf(fits, index, src, from, 32, 16, levels, 0);
        scale = fits.scales[index]!;
      }
      storeF16(dst, to, scale);
      packFifthBits(levels, dst, to + 2);
      packNibbles(levels, 0, dst, to + 6);
    }
  },
};

/** The scale that maps the largest value to level 0, the end with one more step. */
function plainLevels(src: Float32Array, from: number): number {
  const scale = Math.fround(largestMagnitude(src, from, 32) / -16);
  const inverse = reciprocalOrZero(scale);
  for (let i = 0; i < 32; i++) {
    const shifted = Math.fround(Math.fround(src[from + i]! * inverse) + 16.5);
    levels[i] = Math.min(31, (shifted << 24) >> 24);
  }
  return scale;
}
