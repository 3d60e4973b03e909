// Q5_1: 32 values as 5-bit quants times a half-float scale, plus a half-float min.
//
//   block, 24 bytes: scale f16 | min f16 | 32 fifth bits, value i at bit i | 16 bytes of nibbles as in q4_0
//   value = scale * q + min; the product is exact in float32

import { f16ToF32 } from "../base/half.ts";
import { type AffineBlock, affineBlockLadder, quantizeAffineBlocks } from "./affine-blocks.ts";
import { fiveBitsAt, halfAt } from "./block.ts";
import { packFifthBits, packNibbles } from "./blocks-of-32.ts";
import type { DType } from "./dtype.ts";

const type: AffineBlock = {
  blockBytes: 24,
  ladder: affineBlockLadder(31),
  isClamped: false,
  pack(quants, dst, at) {
    packFifthBits(quants, dst, at);
    packNibbles(quants, 0, dst, at + 4);
  },
};

export const q5_1: DType = {
  name: "q5_1",
  ggufId: 7,
  blockElems: 32,
  blockBytes: 24,
  activation: "q8_1",
  block: { kind: "quants", scale: halfAt(0), min: halfAt(2), quants: fiveBitsAt(8, 4) },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const d = f16ToF32(src[from]! | (src[from + 1]! << 8));
      const m = f16ToF32(src[from + 2]! | (src[from + 3]! << 8));
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

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search) {
    quantizeAffineBlocks(type, src, srcOffset, dst, dstOffset, blocks, importance, search);
  },
};
