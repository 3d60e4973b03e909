// Q8_0: 32 values as signed bytes times one half-float scale. Activations are quantized to it for matmuls with weights
// of the 32-value types that have no min.
//
//   block, 34 bytes: scale f16 | 32 x int8
//   value = scale * q

import { f16ToF32 } from "../base/half.ts";
import { halfAt } from "./block.ts";
import type { DType } from "./dtype.ts";
import { largestMagnitude, reciprocalOrZero, roundHalfAway, storeF16 } from "./float32-math.ts";

export const q8_0: DType = {
  name: "q8_0",
  ggufId: 8,
  blockElems: 32,
  blockBytes: 34,
  activation: "q8_0",
  block: {
    kind: "quants",
    scale: halfAt(0),
    quants: { per: 1, pieces: [{ bits: 8, at: 16, strides: [[32, 8]] }], isSigned: true },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const scale = f16ToF32(src[from]! | (src[from + 1]! << 8));
      for (let i = 0; i < 32; i++) dst[to + i] = scale * ((src[from + 2 + i]! << 24) >> 24);
      from += 34;
      to += 32;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const scale = Math.fround(Math.abs(largestMagnitude(src, from, 32)) / 127);
      const inverse = reciprocalOrZero(scale);
      storeF16(dst, to, scale);
      for (let i = 0; i < 32; i++) {
        dst[to + 2 + i] = roundHalfAway(Math.fround(src[from + i]! * inverse));
      }
      from += 32;
      to += 34;
    }
  },
};
