// Q8_K: 256 values as signed bytes times one float32 scale, with the sums of each 16 quants. Activations are quantized to
// it for matmuls with weights of the 256-value types. Not found in model files.
//
//   block, 292 bytes: scale f32 | 256 x int8 | 16 x int16 sums
//   value = scale * q

import type { DType } from "./dtype.ts";
import { largestMagnitude, nearestInt } from "./float32-math.ts";

const scratchF32 = new Float32Array(1);
const scratchBytes = new Uint8Array(scratchF32.buffer);

export const q8_k: DType = {
  name: "q8_k",
  ggufId: 15,
  blockElems: 256,
  blockBytes: 292,
  activation: "f32", // it is never a weight
  block: {
    kind: "quants",
    scale: { format: "f32", pieces: [{ bits: 32, at: 0 }] },
    quants: { per: 1, pieces: [{ bits: 8, at: 32, strides: [[256, 8]] }], isSigned: true },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      for (let i = 0; i < 4; i++) scratchBytes[i] = src[from + i]!;
      const scale = scratchF32[0]!;
      for (let i = 0; i < 256; i++) dst[to + i] = scale * ((src[from + 4 + i]! << 24) >> 24);
      from += 292;
      to += 256;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const largest = largestMagnitude(src, from, 256);
      if (largest === 0) dst.fill(0, to, to + 292);
      else quantizeBlock(src, from, dst, to, largest);
      from += 256;
      to += 292;
    }
  },
};

function quantizeBlock(
  src: Float32Array,
  from: number,
  dst: Uint8Array,
  to: number,
  largest: number,
): void {
  const inverse = Math.fround(-127 / largest);
  scratchF32[0] = 1 / inverse;
  dst.set(scratchBytes, to);
  for (let subBlock = 0; subBlock < 16; subBlock++) {
    let sum = 0;
    for (let i = 16 * subBlock; i < 16 * subBlock + 16; i++) {
      const quant = Math.min(127, nearestInt(Math.fround(inverse * src[from + i]!)));
      dst[to + 4 + i] = quant;
      sum += (quant << 24) >> 24;
    }
    dst[to + 260 + 2 * subBlock] = sum & 255;
    dst[to + 261 + 2 * subBlock] = (sum >> 8) & 255;
  }
}
