// What q4_k and q5_k share: a super-block of 256 values in 8 groups of 32, each with a 6-bit scale and a 6-bit minimum
// that are themselves multiples of two half floats. They differ in the bits of a quant and in how quants are packed.
//
//   header, 16 bytes: d f16 | dmin f16 | 12 bytes: eight 6-bit scales and eight 6-bit minimums
//   value = d * scale[group] * quant - dmin * minimum[group]

import { f16ToF32 } from "../base/half.ts";
import { halfAt, type QuantBlock } from "./block.ts";
import { clamp, nearestInt, storeF16, sumOfSquares, weighGroups } from "./float32-math.ts";
import { type GroupSearch, plainSearch, searchedElems } from "./group-search.ts";
import { type AffineLadder, affineQuantsOf, fitPositive, newFits } from "./scale-search.ts";

const f = Math.fround;

/** The header, as a part of the blocks' descriptions: scales and mins of the last four sub-blocks are in pieces. */
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

/** Groups of 32 that are searched at a time. */
const mostGroups = searchedElems / 32;
const weights = new Float32Array(searchedElems);
const weightSums = new Float32Array(mostGroups);
const fits = newFits(mostGroups);
const groupWeights = new Float32Array(8);
const scales = new Float32Array(8);
const minimums = new Float32Array(8);
const scaleQuants = new Uint8Array(8);
const minQuants = new Uint8Array(8);

/** The 6-bit scale of a group; `at` is where the 12 bytes start. */
export function groupScale(bytes: Uint8Array, at: number, group: number): number {
  if (group < 4) return bytes[at + group]! & 63;
  return (bytes[at + group + 4]! & 15) | ((bytes[at + group - 4]! >> 6) << 4);
}

/** The 6-bit minimum of a group. */
export function groupMinimum(bytes: Uint8Array, at: number, group: number): number {
  if (group < 4) return bytes[at + group + 4]! & 63;
  return (bytes[at + group + 4]! >> 4) | ((bytes[at + group]! >> 6) << 4);
}

/** The inverse of the two above, for all groups. */
function packGroupScales(dst: Uint8Array, at: number): void {
  for (let group = 0; group < 4; group++) {
    const upperScale = scaleQuants[group + 4]!;
    const upperMinimum = minQuants[group + 4]!;
    dst[at + group] = scaleQuants[group]! | ((upperScale >> 4) << 6);
    dst[at + group + 4] = minQuants[group]! | ((upperMinimum >> 4) << 6);
    dst[at + group + 8] = (upperScale & 15) | ((upperMinimum & 15) << 4);
  }
}

/** What q4_k and q5_k say of themselves. */
export interface AffineSuperBlock {
  readonly blockBytes: number;
  readonly plain: AffineLadder;
  readonly weighted: AffineLadder;
  /** Puts affineQuants behind the header. */
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
  search: GroupSearch = plainSearch,
): void {
  const atOnce = searchedElems / 256;
  for (let first = 0; first < blocks; first += atOnce) {
    const count = Math.min(atOnce, blocks - first);
    const from = srcOffset + 256 * first;
    if (importance === undefined) weighPlain(src, from, 8 * count);
    else
      weighGroups({
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
      minimums.set(fits.minimums.subarray(8 * block, 8 * block + 8));
      if (importance === undefined) storePlain(dst, to);
      else storeWeighted(dst, to, block);
      packGroupScales(dst, to + 4);
      roundToStoredScales(src, from + 256 * block, dst, to, type.plain.maxQuant, 8 * block);
      type.pack(dst, to + 16);
    }
  }
}

function weighPlain(src: Float32Array, from: number, groups: number): void {
  for (let group = 0; group < groups; group++) {
    const at = from + 32 * group;
    const rootMeanSquare = f(Math.sqrt(f(sumOfSquares(src, at, 32) / 32)));
    for (let i = 0; i < 32; i++) {
      weights[32 * group + i] = f(rootMeanSquare + Math.abs(src[at + i]!));
    }
  }
}

function storePlain(dst: Uint8Array, to: number): void {
  let maxScale = 0;
  let maxMinimum = 0;
  for (let group = 0; group < 8; group++) {
    if (scales[group]! > maxScale) maxScale = scales[group]!;
    if (minimums[group]! > maxMinimum) maxMinimum = minimums[group]!;
  }
  const inverseScale = maxScale > 0 ? f(63 / maxScale) : 0;
  const inverseMinimum = maxMinimum > 0 ? f(63 / maxMinimum) : 0;
  for (let group = 0; group < 8; group++) {
    // "& 255": a negative scale wraps to a byte and then becomes the largest.
    scaleQuants[group] = Math.min(63, nearestInt(f(inverseScale * scales[group]!)) & 255);
    minQuants[group] = Math.min(63, nearestInt(f(inverseMinimum * minimums[group]!)) & 255);
  }
  storeF16(dst, to, f(maxScale / 63));
  storeF16(dst, to + 2, f(maxMinimum / 63));
}

function storeWeighted(dst: Uint8Array, to: number, block: number): void {
  groupWeights.set(weightSums.subarray(8 * block, 8 * block + 8));
  storeF16(dst, to, fitPositive(scales, 8, 63, scaleQuants, groupWeights));
  storeF16(dst, to + 2, fitPositive(minimums, 8, 63, minQuants, groupWeights));
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
  const d = f16ToF32[dst[to]! | (dst[to + 1]! << 8)]!;
  const dmin = f16ToF32[dst[to + 2]! | (dst[to + 3]! << 8)]!;
  for (let group = 0; group < 8; group++) {
    const scale = f(d * groupScale(dst, to + 4, group));
    if (scale === 0) {
      const at = 32 * group;
      affineQuantsOf(fits, firstFit + group, src, from + at, 32, maxQuant, affineQuants, at);
      continue;
    }
    const minimum = f(dmin * groupMinimum(dst, to + 4, group));
    for (let i = 32 * group; i < 32 * group + 32; i++) {
      const quant = nearestInt(f(f(src[from + i]! + minimum) / scale));
      affineQuants[i] = clamp(quant, 0, maxQuant);
    }
  }
}
