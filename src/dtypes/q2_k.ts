// Q2_K: super-blocks of 256 values as 2-bit quants in 16 sub-blocks of 16, each with a 4-bit scale and a 4-bit min.
//
//   block, 84 bytes: 16 bytes: scale in the low nibble, min in the high one | 64 bytes of quants
//   (two-bit-quants.ts) | d f16 | dmin f16
//   value = d * scale[sub-block] * q - dmin * min[sub-block]; the products are exact in float32

import { f16ToF32 } from "../base/half.ts";
import { halfAt, twoBitsAt } from "./block.ts";
import { plainSearch, searchedElems } from "./block-search.ts";
import type { DType } from "./dtype.ts";
import { clamp, nearestInt, storeF16, weighSubBlocks } from "./float32-math.ts";
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
const subBlockWeights = new Float32Array(16);
const scales = new Float32Array(16);
const mins = new Float32Array(16);
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
      const d = f16ToF32(src[from + 80]! | (src[from + 81]! << 8));
      const dmin = f16ToF32(src[from + 82]! | (src[from + 83]! << 8));
      for (let subBlock = 0; subBlock < 16; subBlock++) {
        const packed = src[from + subBlock]!;
        const scale = d * (packed & 15);
        const min = dmin * (packed >> 4);
        const bytes = from + 16 + 32 * (subBlock >> 3) + 16 * (subBlock & 1);
        const shift = subBlock & 6;
        for (let i = 0; i < 16; i++) {
          dst[to + i] = scale * ((src[bytes + i]! >> shift) & 3) - min;
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
        weighSubBlocks({
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
        mins.set(fits.mins.subarray(16 * block, 16 * block + 16));
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
  let maxMin = 0;
  for (let subBlock = 0; subBlock < 16; subBlock++) {
    if (scales[subBlock]! > maxScale) maxScale = scales[subBlock]!;
    if (mins[subBlock]! > maxMin) maxMin = mins[subBlock]!;
  }
  const inverseScale = maxScale > 0 ? f(15 / maxScale) : 0;
  const inverseMin = maxMin > 0 ? f(15 / maxMin) : 0;
  for (let subBlock = 0; subBlock < 16; subBlock++) {
    const scale = nearestInt(f(inverseScale * scales[subBlock]!));
    const min = nearestInt(f(inverseMin * mins[subBlock]!));
    dst[to + subBlock] = scale | (min << 4);
  }
  storeF16(dst, to + 80, f(maxScale / 15));
  storeF16(dst, to + 82, f(maxMin / 15));
}

function storeWeighted(dst: Uint8Array, to: number, block: number): void {
  subBlockWeights.set(weightSums.subarray(16 * block, 16 * block + 16));
  storeF16(dst, to + 80, fitPositive(scales, 16, 15, scaleQuants, subBlockWeights));
  storeF16(dst, to + 82, fitPositive(mins, 16, 15, minQuants, subBlockWeights));
  for (let subBlock = 0; subBlock < 16; subBlock++) {
    dst[to + subBlock] = scaleQuants[subBlock]! | (minQuants[subBlock]! << 4);
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
  const d = f16ToF32(dst[to + 80]! | (dst[to + 81]! << 8));
  const dmin = f16ToF32(dst[to + 82]! | (dst[to + 83]! << 8));
  for (let subBlock = 0; subBlock < 16; subBlock++) {
    const scale = f(d * (dst[to + subBlock]! & 15));
    if (scale === 0) {
      const at = 16 * subBlock;
      affineQuantsOf(fits, firstFit + subBlock, src, from + at, 16, 3, quants, at);
      continue;
    }
    const min = f(dmin * (dst[to + subBlock]! >> 4));
    for (let i = 16 * subBlock; i < 16 * subBlock + 16; i++) {
      quants[i] = clamp(nearestInt(f(f(src[from + i]! + min) / scale)), 0, 3);
    }
  }
}
