// Q5_1: 32 values as 5-bit levels times a half-float scale, plus a half-float minimum.
//
//   block, 24 bytes: scale f16 | minimum f16 | 32 fifth bits, value i at bit i | 16 bytes of nibbles as in q4_0
//   value = scale * q + minimum; the product is exact in float32

import { f16ToF32 } from "../base/half.ts";
import { packFifthBits, packNibbles, weighBlocks } from "./blocks-of-32.ts";
import type { DType } from "./dtype.ts";
import { storeF16 } from "./float32-steps.ts";
import { plainSearch, searchedElems } from "./group-search.ts";
import { type AffineLadder, affineLevelsOf, newFits, spanLevels } from "./scale-search.ts";

const weighted: AffineLadder = {
  maxLevel: 31,
  first: Math.fround(-0.9),
  delta: Math.fround(0.05),
  steps: 36,
  absolute: false,
};

const levels = new Uint8Array(32);
/** Blocks that are searched at a time. */
const searchedBlocks = searchedElems / 32;
const weights = new Float32Array(searchedElems);
const fits = newFits(searchedBlocks);
const scale = new Float32Array(1);
const minimum = new Float32Array(1); // as a positive offset: -minimum is what is stored

export const q5_1: DType = {
  name: "q5_1",
  ggufId: 7,
  blockElems: 32,
  blockBytes: 24,
  activation: "q8_1",

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const d = f16ToF32[src[from]! | (src[from + 1]! << 8)]!;
      const m = f16ToF32[src[from + 2]! | (src[from + 3]! << 8)]!;
      const fifthLow = src[from + 4]! | (src[from + 5]! << 8);
      const fifthHigh = src[from + 6]! | (src[from + 7]! << 8);
      for (let i = 0; i < 16; i++) {
        const pair = src[from + 8 + i]!;
        dst[to + i] = d * ((pair & 15) | (((fifthLow >> i) & 1) << 4)) + m;
        dst[to + 16 + i] = d * ((pair >> 4) | (((fifthHigh >> i) & 1) << 4)) + m;
      }
      from += 24;
      to += 32;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search = plainSearch) {
    for (let block = 0; block < blocks; block++) {
      const from = srcOffset + 32 * block;
      const to = dstOffset + 24 * block;
      if (importance === undefined) {
        spanLevels(src, from, 31, levels, scale, minimum);
      } else {
        const index = block % searchedBlocks;
        if (index === 0) {
          const count = Math.min(searchedBlocks, blocks - block);
          weighBlocks(weights, importance, src, srcOffset, block, count);
          search.affine(src, from, 32, count, weights, weighted, fits);
        }
        affineLevelsOf(fits, index, src, from, 32, 31, levels, 0);
        scale[0] = fits.scales[index]!;
        minimum[0] = fits.minimums[index]!;
      }
      storeF16(dst, to, scale[0]!);
      storeF16(dst, to + 2, -minimum[0]!);
      packFifthBits(levels, dst, to + 4);
      packNibbles(levels, 0, dst, to + 8);
    }
  },
};
