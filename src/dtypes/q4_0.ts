// Q4_0: 32 values as 4-bit levels around 8, times one half-float scale.
//
//   block, 18 bytes: scale f16 | 16 bytes: low nibbles hold values 0-15, high nibbles 16-31
//   value = scale * (q - 8)

import { f16ToF32 } from "../base/half.ts";
import { packNibbles, weighBlocks } from "./blocks-of-32.ts";
import type { DType } from "./dtype.ts";
import { largestMagnitude, reciprocalOrZero, storeF16 } from "./float32-steps.ts";
import { plainSearch, searchedElems } from "./group-search.ts";
import { newFits, symmetricLevelsOf } from "./scale-search.ts";

const levels = new Int8Array(32);
/** Blocks that are searched at a time. */
const searchedBlocks = searchedElems / 32;
const weights = new Float32Array(searchedElems);
const fits = newFits(searchedBlocks);

export const q4_0: DType = {
  name: "q4_0",
  ggufId: 2,
  blockElems: 32,
  blockBytes: 18,
  activation: "q8_0",

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const scale = f16ToF32[src[from]! | (src[from + 1]! << 8)]!;
      for (let i = 0; i < 16; i++) {
        const pair = src[from + 2 + i]!;
        dst[to + i] = scale * ((pair & 15) - 8);
        dst[to + 16 + i] = scale * ((pair >> 4) - 8);
      }
      from += 18;
      to += 32;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search = plainSearch) {
    for (let block = 0; block < blocks; block++) {
      const from = srcOffset + 32 * block;
      const to = dstOffset + 18 * block;
      let scale: number;
      if (importance === undefined) {
        scale = plainLevels(src, from);
      } else {
        const index = block % searchedBlocks;
        if (index === 0) {
          const count = Math.min(searchedBlocks, blocks - block);
          weighBlocks(weights, importance, src, srcOffset, block, count);
          search.symmetric(src, from, 32, count, 8, weights, fits);
        }
        symmetricLevelsOf(fits, index, src, from, 32, 8, levels, 0);
        scale = fits.scales[index]!;
      }
      storeF16(dst, to, scale);
      packNibbles(levels, 0, dst, to + 2);
    }
  },
};

/** The scale that maps the largest value to level 0, the end with one more step. */
function plainLevels(src: Float32Array, from: number): number {
  const scale = Math.fround(largestMagnitude(src, from, 32) / -8);
  const inverse = reciprocalOrZero(scale);
  for (let i = 0; i < 32; i++) {
    const shifted = Math.fround(Math.fround(src[from + i]! * inverse) + 8.5);
    levels[i] = Math.min(15, (shifted << 24) >> 24);
  }
  return scale;
}
