// TQ2_0: 2.06 bits a weight. Ternary weights, two bits each: larger than TQ1_0, faster to unpack.
//
// Block of 256 in 66 bytes:
//   64 x u8   bits 2n and 2n + 1 of byte m are weight 32 n + m (bytes 0..31) or 128 + 32 n + m - 32 (bytes 32..63)
//   f16 d
// weight = d * (bits - 1); the unused pattern 3 gives 2 d, as in ggml.

import { f16ToF32 } from "../base/half.ts";
import { halfAt, twoBitsAt } from "./block.ts";
import type { DType } from "./dtype.ts";
import { reciprocalOrZero, roundHalfAway, storeF16 } from "./float32-math.ts";

const dAt = 64;

export const tq2_0: DType = {
  name: "tq2_0",
  ggufId: 35,
  blockElems: 256,
  blockBytes: 66,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(64),
    quants: { per: 1, pieces: [twoBitsAt(0)] },
    offset: -1,
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    for (let block = 0; block < blocks; block++) {
      const at = srcOffset + block * 66;
      const d = f16ToF32(src[at + dAt]! | (src[at + dAt + 1]! << 8));
      for (let m = 0; m < 64; m++) {
        const bits = src[at + m]!;
        const out = dstOffset + block * 256 + (m >> 5) * 128 + (m & 31);
        dst[out] = ((bits & 3) - 1) * d;
        dst[out + 32] = (((bits >> 2) & 3) - 1) * d;
        dst[out + 64] = (((bits >> 4) & 3) - 1) * d;
        dst[out + 96] = ((bits >> 6) - 1) * d;
      }
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks) {
    for (let block = 0; block < blocks; block++) {
      const from = srcOffset + block * 256;
      const to = dstOffset + block * 66;
      let d = 0;
      for (let i = from; i < from + 256; i++) d = Math.max(d, Math.abs(src[i]!));
      const inverse = reciprocalOrZero(d);
      for (let m = 0; m < 64; m++) {
        const first = from + (m >> 5) * 128 + (m & 31);
        let bits = 0;
        for (let n = 0; n < 4; n++) {
          const value = roundHalfAway(Math.fround(src[first + 32 * n]! * inverse)) + 1;
          bits |= (value & 3) << (2 * n);
        }
        dst[to + m] = bits;
      }
      storeF16(dst, to + dAt, d);
    }
  },
};
