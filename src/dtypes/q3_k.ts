// Q3_K: super-blocks of 256 values as 3-bit quants around 4, in 16 sub-blocks of 16 with 6-bit scales around 32.
//
//   block, 110 bytes: 32 bytes: bit r of byte i is the third bit of value 32 r + i | 64 bytes of the lower two
//   bits (two-bit-quants.ts) | 12 bytes of scales | d f16
//   value = d * (scale[sub-block] - 32) * (q - 4); the products are exact in float32
// Scale g has its low nibble in byte g (g < 8: the low half, else byte g - 8's high half) and its upper two bits in byte
// 8 + g mod 4, at bit 2 * (g div 4).

import { f16ToF32 } from "../base/half.ts";
import { halfAt, oneBitAt, twoBitsAt } from "./block.ts";
import { plainSearch, searchedElems } from "./block-search.ts";
import type { DType } from "./dtype.ts";
import { clamp, nearestInt, storeF16, weighSubBlocks } from "./float32-math.ts";
import { fitSymmetric, fitSymmetricGreedy, newFits, symmetricQuantsOf } from "./scale-search.ts";
import { packTwoBitQuants } from "./two-bit-quants.ts";

const f = Math.fround;

const quants = new Int8Array(256);
const weights = new Float32Array(searchedElems);
const weightSums = new Float32Array(searchedElems / 16);
const fits = newFits(searchedElems / 16);
const scaleFit = newFits(1);
const subBlockWeights = new Float32Array(16);
const scales = new Float32Array(16);
const scaleQuants = new Int8Array(16);

export const q3_k: DType = {
  name: "q3_k",
  ggufId: 11,
  blockElems: 256,
  blockBytes: 110,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(108),
    scales: {
      per: 16,
      pieces: [
        {
          bits: 4,
          at: 8 * 96,
          strides: [
            [8, 8],
            [2, 4],
          ],
        },
        {
          bits: 2,
          at: 8 * 104,
          strides: [
            [4, 8],
            [4, 2],
          ],
          to: 4,
        },
      ],
      plus: -32,
    },
    quants: { per: 1, pieces: [twoBitsAt(32), oneBitAt(0, 2)] },
    offset: -4,
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const d = f16ToF32(src[from + 108]! | (src[from + 109]! << 8));
      for (let subBlock = 0; subBlock < 16; subBlock++) {
        const scale = d * (subBlockScale(src, from + 96, subBlock) - 32);
        const part = 16 * (subBlock & 1);
        const thirds = from + part;
        const bytes = from + 32 + 32 * (subBlock >> 3) + part;
        const shift = subBlock & 6;
        const run = subBlock >> 1;
        for (let i = 0; i < 16; i++) {
          const low = (src[bytes + i]! >> shift) & 3;
          const third = (src[thirds + i]! >> run) & 1;
          dst[to + i] = scale * ((low | (third << 2)) - 4);
        }
        to += 16;
      }
      from += 110;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search = plainSearch) {
    const atOnce = searchedElems / 256;
    for (let first = 0; first < blocks; first += atOnce) {
      const count = Math.min(atOnce, blocks - first);
      const from = srcOffset + 256 * first;
      if (importance === undefined) search.greedy(src, from, 16, 16 * count, 4, fits);
      else {
        weighSubBlocks({
          weights,
          sums: weightSums,
          x: src,
          from,
          blocks: count,
          size: 16,
          importance,
          position: 256 * first,
          spread: 2,
        });
        search.symmetric(src, from, 16, 16 * count, 4, weights, fits);
      }
      for (let block = 0; block < count; block++) {
        const to = dstOffset + 110 * (first + block);
        scales.set(fits.scales.subarray(16 * block, 16 * block + 16));
        if (importance === undefined) storePlain(dst, to);
        else storeWeighted(dst, to, block);
        packSubBlockScales(dst, to + 96);
        roundToStoredScales(src, from + 256 * block, dst, to, importance && 16 * block);
        packThirdBits(dst, to);
        packTwoBitQuants(quants, dst, to + 32);
      }
    }
  },
};

/** The 6-bit scale of a sub-block; `at` is where the 12 bytes start. */
function subBlockScale(bytes: Uint8Array, at: number, subBlock: number): number {
  const low = subBlock < 8 ? bytes[at + subBlock]! & 15 : bytes[at + subBlock - 8]! >> 4;
  const high = (bytes[at + 8 + (subBlock & 3)]! >> (2 * (subBlock >> 2))) & 3;
  return low | (high << 4);
}

function packSubBlockScales(dst: Uint8Array, at: number): void {
  for (let i = 0; i < 8; i++) {
    dst[at + i] = (scaleQuants[i]! & 15) | ((scaleQuants[i + 8]! & 15) << 4);
  }
  for (let i = 0; i < 4; i++) {
    let upper = 0;
    for (let k = 0; k < 4; k++) upper |= ((scaleQuants[4 * k + i]! >> 4) & 3) << (2 * k);
    dst[at + 8 + i] = upper;
  }
}

function storePlain(dst: Uint8Array, to: number): void {
  let largest = 0;
  for (let subBlock = 0; subBlock < 16; subBlock++) {
    if (Math.abs(scales[subBlock]!) > Math.abs(largest)) largest = scales[subBlock]!;
  }
  if (largest === 0) {
    scaleQuants.fill(0);
    storeF16(dst, to + 108, 0);
    return;
  }
  const inverse = f(-32 / largest);
  for (let subBlock = 0; subBlock < 16; subBlock++) {
    const wrapped = (nearestInt(f(inverse * scales[subBlock]!)) << 24) >> 24; // a signed byte in C
    scaleQuants[subBlock] = clamp(wrapped, -32, 31) + 32;
  }
  storeF16(dst, to + 108, f(1 / inverse));
}

function storeWeighted(dst: Uint8Array, to: number, block: number): void {
  subBlockWeights.set(weightSums.subarray(16 * block, 16 * block + 16));
  fitSymmetric(scales, 0, 16, 32, subBlockWeights, 0, scaleFit, 0);
  symmetricQuantsOf(scaleFit, 0, scales, 0, 16, 32, scaleQuants, 0);
  storeF16(dst, to + 108, scaleFit.scales[0]!);
}

/** Quants for the scales as stored, or, if that is zero, for the scale that the search found. */
function roundToStoredScales(
  src: Float32Array,
  from: number,
  dst: Uint8Array,
  to: number,
  firstFit: number | undefined,
): void {
  const d = f16ToF32(dst[to + 108]! | (dst[to + 109]! << 8));
  for (let subBlock = 0; subBlock < 16; subBlock++) {
    const scale = f(d * (subBlockScale(dst, to + 96, subBlock) - 32));
    if (scale === 0) {
      const at = 16 * subBlock;
      if (firstFit === undefined) fitSymmetricGreedy(src, from + at, 16, 4, quants, at);
      else symmetricQuantsOf(fits, firstFit + subBlock, src, from + at, 16, 4, quants, at);
      continue;
    }
    for (let i = 16 * subBlock; i < 16 * subBlock + 16; i++) {
      quants[i] = clamp(nearestInt(f(src[from + i]! / scale)), -4, 3) + 4;
    }
  }
}

function packThirdBits(dst: Uint8Array, at: number): void {
  for (let i = 0; i < 32; i++) {
    let thirds = 0;
    for (let run = 0; run < 8; run++) thirds |= ((quants[32 * run + i]! >> 2) & 1) << run;
    dst[at + i] = thirds;
  }
}
