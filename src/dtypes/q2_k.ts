// Q2_K: super-blocks of 256 values as 2-bit levels in 16 groups of 16, each with a 4-bit scale and a 4-bit minimum.
//
//   block, 84 bytes: 16 bytes: scale in the low nibble, minimum in the high one | 64 bytes of levels
//   (two-bit-levels.ts) | d f16 | dmin f16
//   value = d * scale[group] * q - dmin * minimum[group]; the products are exact in float32

import { f16ToF32 } from "../base/half.ts";
import type { DType } from "./dtype.ts";
import { clamp, nearestInt, storeF16, sumOfSquares, weighByImportance } from "./float32-steps.ts";
import { type AffineLadder, fitAffine, fitPositive } from "./scale-search.ts";
import { packTwoBitLevels } from "./two-bit-levels.ts";

const f = Math.fround;

const plain: AffineLadder = {
  maxLevel: 3,
  first: -0.5,
  delta: f(0.1),
  steps: 15,
  absolute: true,
};
const weighted: AffineLadder = {
  maxLevel: 3,
  first: f(-0.9),
  delta: f(0.05),
  steps: 36,
  absolute: false,
};

const levels = new Uint8Array(256);
const weights = new Float32Array(16);
const groupWeights = new Float32Array(16);
const scales = new Float32Array(16);
const minimums = new Float32Array(16);
const scaleLevels = new Uint8Array(16);
const minimumLevels = new Uint8Array(16);

export const q2_k: DType = {
  name: "q2_k",
  ggufId: 10,
  blockElems: 256,
  blockBytes: 84,
  activation: "q8_k",

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

  quantize(src, srcOffset, dst, dstOffset, blocks, importance) {
    for (let block = 0; block < blocks; block++) {
      const from = srcOffset + 256 * block;
      const to = dstOffset + 84 * block;
      if (importance === undefined) fitPlain(src, from, dst, to);
      else fitWeighted(src, from, dst, to, importance, (256 * block) % importance.length);
      roundToStoredScales(src, from, dst, to);
      packTwoBitLevels(levels, dst, to + 16);
    }
  },
};

function fitPlain(src: Float32Array, from: number, dst: Uint8Array, to: number): void {
  let maxScale = 0;
  let maxMinimum = 0;
  for (let group = 0; group < 16; group++) {
    const at = from + 16 * group;
    for (let i = 0; i < 16; i++) weights[i] = Math.abs(src[at + i]!);
    fitAffine(src, at, 16, weights, plain, levels, 16 * group, scales, minimums, group);
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

function fitWeighted(
  src: Float32Array,
  from: number,
  dst: Uint8Array,
  to: number,
  importance: Float32Array,
  importanceAt: number,
): void {
  const sigma2 = f(sumOfSquares(src, from, 256) / 256);
  for (let group = 0; group < 16; group++) {
    const at = from + 16 * group;
    const weightAt = importanceAt + 16 * group;
    groupWeights[group] = weighByImportance(weights, importance, weightAt, src, at, 16, sigma2);
    fitAffine(src, at, 16, weights, weighted, levels, 16 * group, scales, minimums, group);
  }
  storeF16(dst, to + 80, fitPositive(scales, 16, 15, scaleLevels, groupWeights));
  storeF16(dst, to + 82, fitPositive(minimums, 16, 15, minimumLevels, groupWeights));
  for (let group = 0; group < 16; group++) {
    dst[to + group] = scaleLevels[group]! | (minimumLevels[group]! << 4);
  }
}

/** The search chose levels for exact scales; choose again for the scales as stored. */
function roundToStoredScales(src: Float32Array, from: number, dst: Uint8Array, to: number): void {
  const d = f16ToF32[dst[to + 80]! | (dst[to + 81]! << 8)]!;
  const dmin = f16ToF32[dst[to + 82]! | (dst[to + 83]! << 8)]!;
  for (let group = 0; group < 16; group++) {
    const scale = f(d * (dst[to + group]! & 15));
    if (scale === 0) continue;
    const minimum = f(dmin * (dst[to + group]! >> 4));
    for (let i = 16 * group; i < 16 * group + 16; i++) {
      levels[i] = clamp(nearestInt(f(f(src[from + i]! + minimum) / scale)), 0, 3);
    }
  }
}
