// Q4_1: 32 values as 4-bit quants times a half-float scale, plus a half-float min.
//
//   block, 20 bytes: scale f16 | min f16 | 16 bytes: low nibbles hold values 0-15, high nibbles 16-31
//   value = scale * q + min; the product is exact in float32

import { f16ToF32 } from "../base/half.ts";
import { type AffineBlock, affineBlockLadder, quantizeAffineBlocks } from "./affine-blocks.ts";
import { halfAt, nibblesAt } from "./block.ts";
import { packNibbles } from "./blocks-of-32.ts";
import type { DType } from "./dtype.ts";

const type: AffineBlock = {
  blockBytes: 20,
  ladder: affineBlockLadder(15),
  isClamped: true,
  pack: (quants, dst, at) => packNibbles(quants, 0, dst, at),
};

export const q4_1: DType = {
  name: "q4_1",
  ggufId: 3,
  blockElems: 32,
  blockBytes: 20,
  activation: "q8_1",
  block: { kind: "quants", scale: halfAt(0), min: halfAt(2), quants: nibblesAt(4) },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const d = f16ToF32(src[from]! | (src[from + 1]! << 8));
      const m = f16ToF32(src[from + 2]! | (src[from + 3]! << 8));
      for (let i = 0; i < 16; i++) {
        const pair = src[from + 4 + i]!;
        dst[to + i] = d * (pair & 15) + m;
        dst[to + 16 + i] = d * (pair >> 4) + m;
      }
      from += 20;
      to += 32;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search) {
    quantizeAffineBlocks(type, src, srcOffset, dst, dstOffset, blocks, importance, search);
  },
};
