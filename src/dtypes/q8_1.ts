// Q8_1: as q8_0, with the scaled sum of the quants beside them. Activations are quantized to it for matmuls with weights
// that have a min (q4_1, q5_1): the min then costs one multiplication a block. Not found in model files.
//
//   block, 36 bytes: scale f16 | scale * sum of quants f16 | 32 x int8
//   value = scale * q

import { f16ToF32 } from "../base/half.ts";
import { halfAt } from "./block.ts";
import type { DType } from "./dtype.ts";
import { largestMagnitude, reciprocalOrZero, roundHalfAway, storeF16 } from "./float32-math.ts";

export const q8_1: DType = {
  name: "q8_1",
  ggufId: 9,
  blockElems: 32,
  blockBytes: 36,
  activation: "q8_1",
  block: {
    kind: "quants",
    scale: halfAt(0),
    quants: { per: 1, pieces: [{ bits: 8, at: 32, strides: [[32, 8]] }], isSigned: true },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const scale = f16ToF32(src[from]! | (src[from + 1]! << 8));
      for (let i = 0; i < 32; i++) dst[to + i] = scale * ((src[from + 4 + i]! << 24) >> 24);
      from += 36;
      to += 32;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const scale = Math.fround(Math.abs(largestMagnitude(src, from, 32)) / 127);
      const inverse = reciprocalOrZero(scale);
      let sum = 0;
      for (let i = 0; i < 32; i++) {
        const quant = (roundHalfAway(Math.fround(src[from + i]! * inverse)) << 24) >> 24;
        dst[to + 4 + i] = quant;
        sum += quant;
      }
      storeF16(dst, to, scale);
      storeF16(dst, to + 2, Math.fround(sum * scale)); // the exact scale, not the stored one
      from += 32;
      to += 36;
    }
  },
};
