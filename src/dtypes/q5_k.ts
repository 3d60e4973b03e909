// Q5_K: as q4_k with a fifth bit per quant.
//
//   block, 176 bytes: header of 16 (affine-super-block.ts) | 32 bytes: bit g of byte i is the fifth bit of value i of
//   sub-block g | 128 bytes of nibbles as in q4_k
//   value = d * scale[sub-block] * q - dmin * min[sub-block]; the products are exact in float32

import { f16ToF32 } from "../base/half.ts";
import {
  type AffineSuperBlock,
  affineHeader,
  affineQuants,
  quantizeAffineSuperBlocks,
  subBlockMin,
  subBlockScale,
} from "./affine-super-block.ts";
import { oneBitAt } from "./block.ts";
import type { DType } from "./dtype.ts";
import type { AffineLadder } from "./scale-search.ts";

const plain: AffineLadder = {
  maxQuant: 31,
  first: -0.5,
  delta: Math.fround(0.1),
  steps: 15,
  absolute: false,
};
const weighted: AffineLadder = {
  maxQuant: 31,
  first: Math.fround(-0.9),
  delta: Math.fround(0.05),
  steps: 36,
  absolute: false,
};

const type: AffineSuperBlock = { blockBytes: 176, plain, weighted, pack: packQuants };

export const q5_k: DType = {
  name: "q5_k",
  ggufId: 13,
  blockElems: 256,
  blockBytes: 176,
  activation: "q8_k",
  block: {
    ...affineHeader,
    quants: {
      per: 1,
      pieces: [
        {
          bits: 4,
          at: 8 * 48,
          strides: [
            [32, 8],
            [2, 4],
            [4, 256],
          ],
        },
        oneBitAt(16, 4),
      ],
    },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const d = f16ToF32(src[from]! | (src[from + 1]! << 8));
      const dmin = f16ToF32(src[from + 2]! | (src[from + 3]! << 8));
      const fifths = from + 16;
      let nibbles = from + 48;
      for (let subBlock = 0; subBlock < 8; subBlock += 2) {
        const scaleLow = d * subBlockScale(src, from + 4, subBlock);
        const minLow = dmin * subBlockMin(src, from + 4, subBlock);
        const scaleHigh = d * subBlockScale(src, from + 4, subBlock + 1);
        const minHigh = dmin * subBlockMin(src, from + 4, subBlock + 1);
        for (let i = 0; i < 32; i++) {
          const pair = src[nibbles + i]!;
          const fifth = src[fifths + i]! >> subBlock;
          dst[to + i] = scaleLow * ((pair & 15) | ((fifth & 1) << 4)) - minLow;
          dst[to + 32 + i] = scaleHigh * ((pair >> 4) | ((fifth & 2) << 3)) - minHigh;
        }
        nibbles += 32;
        to += 64;
      }
      from += 176;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search) {
    quantizeAffineSuperBlocks(type, src, srcOffset, dst, dstOffset, blocks, importance, search);
  },
};

function packQuants(dst: Uint8Array, at: number): void {
  for (let i = 0; i < 32; i++) {
    let fifths = 0;
    for (let pair = 0; pair < 4; pair++) {
      const low = affineQuants[64 * pair + i]!;
      const high = affineQuants[64 * pair + 32 + i]!;
      fifths |= ((low >> 4) << (2 * pair)) | ((high >> 4) << (2 * pair + 1));
      dst[at + 32 + 32 * pair + i] = (low & 15) | ((high & 15) << 4);
    }
    dst[at + i] = fifths;
  }
}
