// Q4_K: super-blocks of 256 values as 4-bit quants in 8 sub-blocks, each with its own 6-bit scale and min.
//
//   block, 144 bytes: header of 16 (affine-super-block.ts) | 128 bytes: byte i of the k-th 32 holds value i of sub-block 2k
//   in its low nibble and of sub-block 2k + 1 in its high nibble
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
import type { DType } from "./dtype.ts";
import type { AffineLadder } from "./scale-search.ts";

const plain: AffineLadder = {
  maxQuant: 15,
  first: -1,
  delta: Math.fround(0.1),
  steps: 20,
  absolute: false,
};
const weighted: AffineLadder = {
  maxQuant: 15,
  first: Math.fround(-0.9),
  delta: Math.fround(0.05),
  steps: 36,
  absolute: false,
};

const type: AffineSuperBlock = { blockBytes: 144, plain, weighted, pack: packQuants };

export const q4_k: DType = {
  name: "q4_k",
  ggufId: 12,
  blockElems: 256,
  blockBytes: 144,
  activation: "q8_k",
  block: {
    ...affineHeader,
    quants: {
      per: 1,
      pieces: [
        {
          bits: 4,
          at: 8 * 16,
          strides: [
            [32, 8],
            [2, 4],
            [4, 256],
          ],
        },
      ],
    },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const d = f16ToF32(src[from]! | (src[from + 1]! << 8));
      const dmin = f16ToF32(src[from + 2]! | (src[from + 3]! << 8));
      let quants = from + 16;
      for (let subBlock = 0; subBlock < 8; subBlock += 2) {
        const scaleLow = d * subBlockScale(src, from + 4, subBlock);
        const minLow = dmin * subBlockMin(src, from + 4, subBlock);
        const scaleHigh = d * subBlockScale(src, from + 4, subBlock + 1);
        const minHigh = dmin * subBlockMin(src, from + 4, subBlock + 1);
        for (let i = 0; i < 32; i++) {
          const pair = src[quants + i]!;
          dst[to + i] = scaleLow * (pair & 15) - minLow;
          dst[to + 32 + i] = scaleHigh * (pair >> 4) - minHigh;
        }
        quants += 32;
        to += 64;
      }
      from += 144;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search) {
    quantizeAffineSuperBlocks(type, src, srcOffset, dst, dstOffset, blocks, importance, search);
  },
};

function packQuants(dst: Uint8Array, at: number): void {
  for (let pairs = 0; pairs < 4; pairs++) {
    for (let i = 0; i < 32; i++) {
      const low = affineQuants[64 * pairs + i]!;
      const high = affineQuants[64 * pairs + 32 + i]!;
      dst[at + 32 * pairs + i] = low | (high << 4);
    }
  }
}
