// Q4_0: 32 values as 4-bit quants around 8, times one half-float scale.
//
//   block, 18 bytes: scale f16 | 16 bytes: low nibbles hold values 0-15, high nibbles 16-31
//   value = scale * (q - 8)

import { f16ToF32 } from "../base/half.ts";
import { halfAt, nibblesAt } from "./block.ts";
import { packNibbles } from "./blocks-of-32.ts";
import type { DType } from "./dtype.ts";
import { quantizeSymmetricBlocks, type SymmetricBlock } from "./symmetric-blocks.ts";

const type: SymmetricBlock = {
  blockBytes: 18,
  middle: 8,
  pack: (quants, dst, at) => packNibbles(quants, 0, dst, at),
};

export const q4_0: DType = {
  name: "q4_0",
  ggufId: 2,
  blockElems: 32,
  blockBytes: 18,
  activation: "q8_0",
  block: { kind: "quants", scale: halfAt(0), quants: nibblesAt(2), offset: -8 },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const scale = f16ToF32(src[from]! | (src[from + 1]! << 8));
      for (let i = 0; i < 16; i++) {
        const pair = src[from + 2 + i]!;
        dst[to + i] = scale * ((pair & 15) - 8);
        dst[to + 16 + i] = scale * ((pair >> 4) - 8);
      }
      from += 18;
      to += 32;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search) {
    quantizeSymmetricBlocks(type, src, srcOffset, dst, dstOffset, blocks, importance, search);
  },
};
