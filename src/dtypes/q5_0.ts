// Q5_0: 32 values as 5-bit quants around 16, times one half-float scale.
//
//   block, 22 bytes: scale f16 | 32 fifth bits, value i at bit i | 16 bytes of nibbles as in q4_0
//   value = scale * (q - 16)

import { f16ToF32 } from "../base/half.ts";
import { fiveBitsAt, halfAt } from "./block.ts";
import { packFifthBits, packNibbles } from "./blocks-of-32.ts";
import type { DType } from "./dtype.ts";
import { quantizeSymmetricBlocks, type SymmetricBlock } from "./symmetric-blocks.ts";

const type: SymmetricBlock = {
  blockBytes: 22,
  middle: 16,
  pack(quants, dst, at) {
    packFifthBits(quants, dst, at);
    packNibbles(quants, 0, dst, at + 4);
  },
};

export const q5_0: DType = {
  name: "q5_0",
  ggufId: 6,
  blockElems: 32,
  blockBytes: 22,
  activation: "q8_0",
  block: { kind: "quants", scale: halfAt(0), quants: fiveBitsAt(6, 2), offset: -16 },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const scale = f16ToF32(src[from]! | (src[from + 1]! << 8));
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

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search) {
    quantizeSymmetricBlocks(type, src, srcOffset, dst, dstOffset, blocks, importance, search);
  },
};
