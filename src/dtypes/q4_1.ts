// Q4_1: 32 values as 4-bit levels times a half-float scale, plus a half-float minimum.
//
//   block, 20 bytes: scale f16 | minimum f16 | 16 bytes: low nibbles hold values 0-15, high nibbles 16-31
//   value = scale * q + minimum; the product is exact in float32

import { f16ToF32 } from "../base/half.ts";
import { packNibbles, weighBlocks } from "./blocks-of-32.ts";
import type { DType } from "./dtype.ts";
import { storeF16 } from "./float32-steps.ts";
import { plainSearch, searchedElems } from "./group-search.ts";
import { type AffineLadder, affineLevelsOf, newFits, spanLevels } from "./scale-search.ts";

const weighted: AffineLadder = {
  maxLevel: 15,
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

export const q4_1: DType = {
  name: "q4_1",
  ggufId: 3,
  blockElems: 32,
  blockBytes: 20,
  activation: "q8_1",

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const d = f16ToF32[src[from]! | (src[from + 1]! << 8)]!;
      const m = f16ToF32[src[from + 2]! | (src[from + 3]! << 8)]!;
      for (let i = 0; i < 16; i++) {
        const pair = src[from + 4 + i]!;
        dst[to + i] = d * (pair & 15) + m;
        dst[to + 16 + i] = d * (pair >> 4) + m;
      }
      from += 20;
      to += 32;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search = plainSearch) {
    for (let block = 0; block < blocks; block++) {
      const from = srcOffset + 32 * block;
      const to = dstOffset + 20 * block;
      if (importance === undefined) {
        spanLevels(src, from, 15, levels, scale, minimum);
        for (let i = 0; i < 32; i++) levels[i] = Math.min(15, (levels[i]! << 24) >> 24);
      } else {
        const index = block % searchedBlocks;
        if (index === 0) {
          const count = Math.min(searchedBlocks, blocks - block);
          weighBlocks(weights, importance, src, srcOffset, block, count);
          search.affine(src, from, 32, count, weights, weighted, fits);
        }
        affineLevelsOf(fits, index, src, from, 32, 15, levels, 0);
        scale[0] = fits.scales[index]!;
        minimum[0] = fits.minimums[index]!;
      }
      storeF16(dst, to, scale[0]!);
      storeF16(dst, to + 2, -minimum[0]!);
      packNibbles(levels, 0, dst, to + 4);
    }
  },
};
