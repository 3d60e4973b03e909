// BF16: the upper 16 bits of a float32.

import { f32ToBf16 } from "../base/half.ts";
import type { DType } from "./dtype.ts";

export const bf16: DType = {
  name: "bf16",
  ggufId: 30,
  blockElems: 1,
  blockBytes: 2,
  activation: "bf16",
  block: { kind: "floats", format: "bf16" },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    // Through the integer bits: nothing is computed, so NaN payloads survive.
    const bits = new Uint32Array(dst.buffer, dst.byteOffset + 4 * dstOffset, blocks);
    let from = srcOffset;
    for (let i = 0; i < blocks; i++) {
      bits[i] = (src[from]! << 16) | (src[from + 1]! << 24);
      from += 2;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks) {
    let to = dstOffset;
    for (let i = srcOffset; i < srcOffset + blocks; i++) {
      const bits = f32ToBf16(src[i]!);
      dst[to] = bits & 255;
      dst[to + 1] = bits >>> 8;
      to += 2;
    }
  },
};
