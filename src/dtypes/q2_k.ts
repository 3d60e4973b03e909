// Q2_K: super-blocks of 256 values as 2-bit quants in 16 groups of 16, each with a 4-bit scale and a 4-bit minimum.
//
//   block, 84 bytes: 16 bytes: scale in the low nibble, minimum in the high one | 64 bytes of quants
//   (two-bit-quants.ts) | d f16 | dmin f16
//   value = d * scale[group] * q - dmin * minimum[group]; the products are exact in float32

import { f16ToF32 } from "../base/half.ts";
import { halfAt, twoBitsAt } from "./block.ts";
import type { DType } from "./dtype.ts";
import { clamp, nearestInt, storeF16, weighGroups } from "./float32-math.ts";
import { plainSearch, searchedElems } from "./group-search.ts";
import { type AffineLadder, affineQuantsOf, fitPositive, newFits } from "./scale-search.ts";
import { packTwoBitQuants } from "./two-bit-quants.ts";

const f = Math.fround;

const plain: AffineLadder = {
  maxQuant: 3,
  first: -0.5,
  delta: f(0.1),
  steps: 15,
  absolute: true,
};
const weighted: AffineLadder = {
  maxQuant: 3,
  first: f(-0.9),
  delta: f(0.05),
  steps: 36,
  absolute: false,
};

const quants = new Uint8Array(256);
const weights = new Float32Array(searchedElems);
const weightSums = new Float32Array(searchedElems / 16);
const fits = newFits(searchedElems / 16);
const groupWeights = new Float32Array(16);
const scales = new Float32Array(16);
const minimums = new Float32Array(16);
const scaleQuants = new Uint8Array(16);
const minQuants = new Uint8Array(16);

export const q2_k: DType = {
  name: "q2_k",
  ggufId: 10,
  blockElems: 256,
  blockBytes: 84,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(80),
    scales: { per: 16, pieces: [{ bits: 4, at: 0, strides: [[16, 8]] }] },
    min: { ...halfAt(82), isNegative: true },
    mins: { per: 16, pieces: [{ bits: 4, at: 4, strides: [[16, 8]] }] },
    quants: { per: 1, pieces: [twoBitsAt(16)] },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const d = f16ToF32[src[from + 80]! | (src[from + 81]! << 8)]!;
      const dmin = f16ToF32[src[from + 82]! | (src[from + 83]! << 8)]!;
      for (let group = 0; group < 16; group++) {
        const packed = src[from + group]!;
        const scale = d * (packed & 15);
        const minimum = dmin * (packed >> 4);
        const bytes = from + 16 + 32 * (group >> 3) + 16 * (group & 1);
        const shift = group & 6;
        for (let i = 0; i < 16; i++) {
          dst[to + i] = scale * ((src[bytes + i]! >> shift) & 3) - minimum;
        }
        to += 16;
      }
      from += 84;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search = plainSearch) {
    const atOnce = searchedElems / 256;
    for (let first = 0; first < blocks; first += atOnce) {
      const count = Math.min(atOnce, blocks - first);
      const from = srcOffset + 256 * first;
      if (importance === undefined) {
        for (let i = 0; i < 256 * count; i++) weights[i] = Math.abs(src[from + i]!);
      } else {
        weighGroups({
          weights,
          sums: weightSums,
          x: src,
          from,
          blocks: count,
          size: 16,
          importance,
          position: 256 * first,
          spread: 1,
        });
      }
      const ladder = importance === undefined ? plain : weighted;
      search.affine(src, from, 16, 16 * count, weights, ladder, fits);
      for (let block = 0; block < count; block++) {
        const to = dstOffset + 84 * (first + block);
        scales.set(fits.scales.subarray(16 * block, 16 * block + 16));
        minimums.set(fits.minimums.subarray(16 * block, 16 * block + 16));
        if (importance === undefined) storePlain(dst, to);
        else storeWeighted(dst, to, block);
        roundToStoredScales(src, from + 256 * block, dst, to, 16 * block);
        packTwoBitQuants(quants, dst, to + 16);
      }
    }
  },
};

function storePlain(dst: Uint8Array, to: number): void {
  let maxScale = 0;
  let maxMinimum = 0;
  for (let group = 0; group < 16; group++) {
    if (scales[group]! > maxScale) maxScale = scales[group]!;
    if (minimums[group]! > maxMinimum) maxMinimum = minimums[group]!;
  }
  const inverseScale = maxScale > 0 ? f(15 / maxScale) : 0;
  const inverseMinimum = maxMinimum > 0 ? f(15 / maxMinimum) : 0;
  for (let group = 0; group < 16; group++) {
    const scale = nearestInt(f(inverseScale * scales[group]!));
    const minimum = nearestInt(f(inverseMinimum * minimums[group]!));
    dst[to + group] = scale | (minimum << 4);
  }
  storeF16(dst, to + 80, f(maxScale / 15));
  storeF16(dst, to + 82, f(maxMinimum / 15));
}

function storeWeighted(dst: Uint8Array, to: number, block: number): void {
  groupWeights.set(weightSums.subarray(16 * block, 16 * block + 16));
  storeF16(dst, to + 80, fitPositive(scales, 16, 15, scaleQuants, groupWeights));
  storeF16(dst, to + 82, fitPositive(minimums, 16, 15, minQuants, groupWeights));
  for (let group = 0; group < 16; group++) {
    dst[to + group] = scaleQuants[group]! | (minQuants[group]! << 4);
  }
}

/** The search chose quants for exact scales; choose again for the scales as stored. */
function roundToStoredScales(
  src: Float32Array,
  from: number,
  dst: Uint8Array,
  to: number,
  firstFit: number,
): void {
  const d = f16ToF32[dst[to + 80]! | (dst[to + 81]! << 8)]!;
  const dmin = f16ToF32[dst[to + 82]! | (dst[to + 83]! << 8)]!;
  for (let group = 0; group < 16; group++) {
    const scale = f(d * (dst[to + group]! & 15));
    if (scale === 0) {
      const at = 16 * group;
      affineQuantsOf(fits, firstFit + group, src, from + at, 16, 3, quants, at);
      continue;
    }
    const minimum = f(dmin * (dst[to + group]! >> 4));
    for (let i = 16 * group; i < 16 * group + 16; i++) {
      quants[i] = clamp(nearestInt(f(f(src[from + i]! + minimum) / scale)), 0, 3);
    }
  }
}
