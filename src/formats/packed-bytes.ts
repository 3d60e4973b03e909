// Bytes of a safetensors file that are no values by themselves: quants or scales of a quantized tensor. A tensor of this type never
// leaves src/formats/: GGUF has none.

import type { DType } from "../dtypes/dtype.ts";

export const packedBytes: DType = {
  name: "u8",
  ggufId: -1,
  blockElems: 1,
  blockBytes: 1,
  activation: "f32",
  block: { kind: "floats", format: "f32" },
  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    dst.set(src.subarray(srcOffset, srcOffset + blocks), dstOffset);
  },
};
