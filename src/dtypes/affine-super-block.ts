// The shared header and quantizer of q4_k and q5_k: a super-block of 256 values in 8 sub-blocks of 32, each with a 6-bit
// scale and a 6-bit min in units of two half floats. The types differ in the bits of a quant and in their packing.
//
//   header, 16 bytes: d f16 | dmin f16 | 12 bytes: eight 6-bit scales and eight 6-bit mins
//   value = d * scale[sub-block] * quant - dmin * min[sub-block]

import { f16ToF32 } from "../base/half.ts";
import { halfAt, type QuantBlock } from "./block.ts";
import { type BlockSearch, plainSearch, searchedElems } from "./block-search.ts";
import { clamp, nearestInt, storeF16, sumOfSquares, weighSubBlocks } from "./float32-math.ts";
import { type AffineLadder, affineQuantsOf, fitPositive, newFits } from "./scale-search.ts";

const f = Math.fround;

/** The header's part of DType.block. Scales and mins of the last four sub-blocks are split into two pieces each. */
export const affineHeader: Omit<QuantBlock, "quants"> = {
  kind: "quants",
  scale: halfAt(0),
  scales: {
    per: 32,
    pieces: [
      { bits: 6, at: 8 * 4, strides: [[4, 8]], only: [0, 4] },
      { bits: 4, at: 8 * 12, strides: [[4, 8]], only: [4, 8] },
      { bits: 2, at: 8 * 4 + 6, strides: [[4, 8]], to: 4, only: [4, 8] },
    ],
  },
  min: { ...halfAt(2), isNegative: true },
  mins: {
    per: 32,
    pieces: [
      { bits: 6, at: 8 * 8, strides: [[4, 8]], only: [0, 4] },
      { bits: 4, at: 8 * 12 + 4, strides: [[4, 8]], only: [4, 8] },
      { bits: 2, at: 8 * 8 + 6, strides: [[4, 8]], to: 4, only: [4, 8] },
    ],
  },
};

/** The quants of the block that is being quantized; AffineSuperBlock.pack packs them. */
export const affineQuants: Uint8Array = new Uint8Array(256);

/** Sub-blocks of 32 that are searched at a time. */
const mostSubBlocks = searchedElems / 32;
const weights = new Float32Array(searchedElems);
const weightSums = new Float32Array(mostSubBlocks);
const fits = newFits(mostSubBlocks);
const subBlockWeights = new Float32Array(8);
const scales = new Float32Array(8);
const mins = new Float32Array(8);
const scaleQuants = new Uint8Array(8);
const minQuants = new Uint8Array(8);

/** The 6-bit scale of a sub-block; `at` is where the 12 bytes start. */
export function subBlockScale(bytes: Uint8Array, at: number, subBlock: number): number {
  if (subBlock < 4) return bytes[at + subBlock]! & 63;
  return (bytes[at + subBlock + 4]! & 15) | ((bytes[at + subBlock - 4]! >> 6) << 4);
}

/** The 6-bit min of a sub-block. */
export function subBlockMin(bytes: Uint8Array, at: number, subBlock: number): number {
  if (subBlock < 4) return bytes[at + subBlock + 4]! & 63;
  return (bytes[at + subBlock + 4]! >> 4) | ((bytes[at + subBlock]! >> 6) << 4);
}

/** The inverse of the two above, for all sub-blocks. */
function packSubBlockScales(dst: Uint8Array, at: number): void {
  for (let subBlock = 0; subBlock < 4; subBlock++) {
    const upperScale = scaleQuants[subBlock + 4]!;
    const upperMin = minQuants[subBlock + 4]!;
    dst[at + subBlock] = scaleQuants[subBlock]! | ((upperScale >> 4) << 6);
    dst[at + subBlock + 4] = minQuants[subBlock]! | ((upperMin >> 4) << 6);
    dst[at + subBlock + 8] = (upperScale & 15) | ((upperMin & 15) << 4);
  }
}

/** The differences between q4_k and q5_k. */
export interface AffineSuperBlock {
  readonly blockBytes: number;
  readonly plain: AffineLadder;
  readonly weighted: AffineLadder;
  /** Writes affineQuants after the header. */
  pack(dst: Uint8Array, at: number): void;
}

/** DType.quantize of such a type. */
export function quantizeAffineSuperBlocks(
  type: AffineSuperBlock,
  src: Float32Array,
  srcOffset: number,
  dst: Uint8Array,
  dstOffset: number,
  blocks: number,
  importance: Float32Array | undefined,
  search: BlockSearch = plainSearch,
): void {
  const atOnce = searchedElems / 256;
  for (let first = 0; first < blocks; first += atOnce) {
    const count = Math.min(atOnce, blocks - first);
    const from = srcOffset + 256 * first;
    if (importance === undefined) weighPlain(src, from, 8 * count);
    else
      weighSubBlocks({
        weights,
        sums: weightSums,
        x: src,
        from,
        blocks: count,
        size: 32,
        importance,
        position: 256 * first,
        spread: 2,
      });
    const ladder = importance === undefined ? type.plain : type.weighted;
    search.affine(src, from, 32, 8 * count, weights, ladder, fits);
    for (let block = 0; block < count; block++) {
      const to = dstOffset + type.blockBytes * (first + block);
      scales.set(fits.scales.subarray(8 * block, 8 * block + 8));
      mins.set(fits.mins.subarray(8 * block, 8 * block + 8));
      if (importance === undefined) storePlain(dst, to);
      else storeWeighted(dst, to, block);
      packSubBlockScales(dst, to + 4);
      roundToStoredScales(src, from + 256 * block, dst, to, type.plain.maxQuant, 8 * block);
      type.pack(dst, to + 16);
    }
  }
}

function weighPlain(src: Float32Array, from: number, subBlocks: number): void {
  for (let subBlock = 0; subBlock < subBlocks; subBlock++) {
    const at = from + 32 * subBlock;
    const rootMeanSquare = f(Math.sqrt(f(sumOfSquares(src, at, 32) / 32)));
    for (let i = 0; i < 32; i++) {
      weights[32 * subBlock + i] = f(rootMeanSquare + Math.abs(src[at + i]!));
    }
  }
}

function storePlain(dst: Uint8Array, to: number): void {
  let maxScale = 0;
  let maxMin = 0;
  for (let subBlock = 0; subBlock < 8; subBlock++) {
    if (scales[subBlock]! > maxScale) maxScale = scales[subBlock]!;
    if (mins[subBlock]! > maxMin) maxMin = mins[subBlock]!;
  }
  const inverseScale = maxScale > 0 ? f(63 / maxScale) : 0;
  const inverseMin = maxMin > 0 ? f(63 / maxMin) : 0;
  for (let subBlock = 0; subBlock < 8; subBlock++) {
    // "& 255": a negative scale wraps to a byte and then becomes the largest.
    scaleQuants[subBlock] = Math.min(63, nearestInt(f(inverseScale * scales[subBlock]!)) & 255);
    minQuants[subBlock] = Math.min(63, nearestInt(f(inverseMin * mins[subBlock]!)) & 255);
  }
  storeF16(dst, to, f(maxScale / 63));
  storeF16(dst, to + 2, f(maxMin / 63));
}

function storeWeighted(dst: Uint8Array, to: number, block: number): void {
  subBlockWeights.set(weightSums.subarray(8 * block, 8 * block + 8));
  storeF16(dst, to, fitPositive(scales, 8, 63, scaleQuants, subBlockWeights));
  storeF16(dst, to + 2, fitPositive(mins, 8, 63, minQuants, subBlockWeights));
}

/** The search chose quants for exact scales; choose again for the scales as stored. */
function roundToStoredScales(
  src: Float32Array,
  from: number,
  dst: Uint8Array,
  to: number,
  maxQuant: number,
  firstFit: number,
): void {
  const d = f16ToF32(dst[to]! | (dst[to + 1]! << 8));
  const dmin = f16ToF32(dst[to + 2]! | (dst[to + 3]! << 8));
  for (let subBlock = 0; subBlock < 8; subBlock++) {
    const scale = f(d * subBlockScale(dst, to + 4, subBlock));
    if (scale === 0) {
      const at = 32 * subBlock;
      affineQuantsOf(fits, firstFit + subBlock, src, from + at, 32, maxQuant, affineQuants, at);
      continue;
    }
    const min = f(dmin * subBlockMin(dst, to + 4, subBlock));
    for (let i = 32 * subBlock; i < 32 * subBlock + 32; i++) {
      const quant = nearestInt(f(f(src[from + i]! + min) / scale));
      affineQuants[i] = clamp(quant, 0, maxQuant);
    }
  }
}
