// F16: IEEE half floats, one value in two bytes.

import { f16ToF32, f32ToF16 } from "../base/half.ts";
import type { DType } from "./dtype.ts";

export const f16: DType = {
  name: "f16",
  ggufId: 1,
  blockElems: 1,
  blockBytes: 2,
  activation: "f16",
  block: { kind: "floats", format: "f16" },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    for (let i = dstOffset; i < dstOffset + blocks; i++) {
      dst[i] = f16ToF32(src[from]! | (src[from + 1]! << 8));
      from += 2;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks) {
    let to = dstOffset;
    for (let i = srcOffset; i < srcOffset + blocks; i++) {
      const bits = f32ToF16(src[i]!);
      dst[to] = bits & 255;
      dst[to + 1] = bits >>> 8;
      to += 2;
    }
  },
};
