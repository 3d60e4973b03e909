// Blocks of any type that look like a model's weights: for benchmarks and synthetic models, where the values' size
// matters (no overflow, no denormals) and the values do not. Always the same for the same type and count.

import { bytesFor, type DType } from "./dtype.ts";

/** Standard deviation of the values: about a trained model's, so that activations keep their size. */
const deviation = 0.02;

/** Random normal values in `elems / blockElems` blocks; a few megabytes take about a second with the slowest types. */
export function sampleBlocks(dtype: DType, elems: number): Uint8Array<ArrayBuffer> {
  const { block } = dtype;
  const isSearched = block.kind === "quants" && (block.codebook?.size ?? 1) > 1;
  return dtype.quantize && !isSearched ? quantized(dtype, elems) : lucky(dtype, elems);
}

function quantized(dtype: DType, elems: number): Uint8Array<ArrayBuffer> {
  const unit = unitNumbers();
  const normal = (): number => {
    let sum = -6;
    for (let i = 0; i < 12; i++) sum += unit();
    return sum;
  };
  const values = Float32Array.from({ length: elems }, () => deviation * normal());
  const blocks = new Uint8Array(bytesFor(dtype, elems));
  dtype.quantize!(values, 0, blocks, 0, elems / dtype.blockElems);
  return blocks;
}

/**
 * For types that this build only reads, or is slow to write: blocks of random bytes, kept where their values have about the right size, since
 * only the type knows which bytes are the scale. Few are found, so they repeat.
 */
function lucky(dtype: DType, elems: number): Uint8Array<ArrayBuffer> {
  const unit = unitNumbers();
  const { blockElems, blockBytes } = dtype;
  const total = elems / blockElems;
  const distinct = Math.min(total, 1024);
  const result = new Uint8Array(total * blockBytes);
  const values = new Float32Array(blockElems);
  for (let block = 0; block < distinct; ) {
    const at = block * blockBytes;
    for (let i = 0; i < blockBytes; i++) result[at + i] = unit() * 256;
    dtype.dequantize(result, at, values, 0, 1);
    const size = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / blockElems);
    if (size > deviation / 2 && size < deviation * 2) block++; // NaN fails both
  }
  for (let block = distinct; block < total; block++) {
    const from = (block % distinct) * blockBytes;
    result.copyWithin(block * blockBytes, from, from + blockBytes);
  }
  return result;
}

/** Numbers from 0 to 1 (mulberry32), the same ones every time. */
function unitNumbers(): () => number {
  let state = 1;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
