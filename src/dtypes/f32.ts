// F32: plain float32 values, little-endian, as are the machines that this runs on.
//
// The engine computes with these bytes as they are, so an aligned tensor is used without a copy (asFloat32).

import type { DType } from "./dtype.ts";

export const f32: DType = {
  name: "f32",
  ggufId: 0,
  blockElems: 1,
  blockBytes: 4,
  activation: "f32",
  block: { kind: "floats", format: "f32" },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    // A byte copy, since the source may lie at any offset; NaN payloads survive it.
    const bytes = new Uint8Array(dst.buffer, dst.byteOffset + 4 * dstOffset, 4 * blocks);
    bytes.set(src.subarray(srcOffset, srcOffset + 4 * blocks));
  },

  quantize(src, srcOffset, dst, dstOffset, blocks) {
    dst.set(new Uint8Array(src.buffer, src.byteOffset + 4 * srcOffset, 4 * blocks), dstOffset);
  },

  asFloat32(bytes) {
    if (bytes.byteOffset % 4 !== 0 || bytes.byteLength % 4 !== 0) return undefined;
    return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
  },
};
