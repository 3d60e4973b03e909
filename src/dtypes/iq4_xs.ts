// IQ4_XS: super-blocks of 256 values as 4-bit indices of a codebook (nonlinear-codebook.ts), in 8 sub-blocks of 32 with
// 6-bit scales around 32.
//
//   block, 136 bytes: d f16 | 16 bits: upper two bits of scale g at bit 2g | 4 bytes: low nibbles of the scales, even
//   sub-blocks low | 128 bytes: 16 a sub-block, nibbles as in q4_0
//   value = d * (scale[sub-block] - 32) * nonlinearValues[q]; the products are exact in float32

import { f16ToF32 } from "../base/half.ts";
import { halfAt } from "./block.ts";
import { plainSearch, searchedElems } from "./block-search.ts";
import { packNibbles } from "./blocks-of-32.ts";
import type { DType } from "./dtype.ts";
import { clamp, nearestInt, reciprocalOrZero, storeF16, weighBlock } from "./float32-math.ts";
import { nearestNonlinear, nonlinearCodebook, nonlinearValues } from "./nonlinear-codebook.ts";
import { newFits } from "./scale-search.ts";

const f = Math.fround;

const quants = new Uint8Array(32);
const weights = new Float32Array(searchedElems);
const fits = newFits(searchedElems / 32);
const scales = new Float32Array(8);

export const iq4_xs: DType = {
  name: "iq4_xs",
  ggufId: 23,
  blockElems: 256,
  blockBytes: 136,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(0),
    scales: {
      per: 32,
      pieces: [
        { bits: 4, at: 8 * 4, strides: [[8, 4]] },
        { bits: 2, at: 8 * 2, strides: [[8, 2]], to: 4 },
      ],
      plus: -32,
    },
    quants: {
      per: 1,
      pieces: [
        {
          bits: 4,
          at: 8 * 8,
          strides: [
            [16, 8],
            [2, 4],
            [8, 128],
          ],
        },
      ],
    },
    codebook: nonlinearCodebook,
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const d = f16ToF32(src[from]! | (src[from + 1]! << 8));
      const upper = src[from + 2]! | (src[from + 3]! << 8);
      for (let subBlock = 0; subBlock < 8; subBlock++) {
        const low = (src[from + 4 + (subBlock >> 1)]! >> (4 * (subBlock & 1))) & 15;
        const scale = d * ((low | (((upper >> (2 * subBlock)) & 3) << 4)) - 32);
        const nibbles = from + 8 + 16 * subBlock;
        for (let i = 0; i < 16; i++) {
          const pair = src[nibbles + i]!;
          dst[to + i] = scale * nonlinearValues[pair & 15]!;
          dst[to + 16 + i] = scale * nonlinearValues[pair >> 4]!;
        }
        to += 32;
      }
      from += 136;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search = plainSearch) {
    const atOnce = searchedElems / 256;
    for (let first = 0; first < blocks; first += atOnce) {
      const count = Math.min(atOnce, blocks - first);
      const from = srcOffset + 256 * first;
      for (let block = 0; block < count; block++) {
        weighBlock(
          weights,
          256 * block,
          src,
          from + 256 * block,
          256,
          importance,
          256 * (first + block),
        );
      }
      search.nonlinear(src, from, 8 * count, weights, fits);
      for (let block = 0; block < count; block++) {
        scales.set(fits.scales.subarray(8 * block, 8 * block + 8));
        let largest = 0;
        for (const scale of scales) if (Math.abs(scale) > Math.abs(largest)) largest = scale;
        const to = dstOffset + 136 * (first + block);
        storeSubBlocks(src, from + 256 * block, dst, to, f(-largest / 32));
      }
    }
  },
};

/** Rounds the scales to multiples of d, and the values to quants of the rounded scales. */
function storeSubBlocks(
  src: Float32Array,
  from: number,
  dst: Uint8Array,
  to: number,
  d: number,
): void {
  storeF16(dst, to, d);
  const inverse = reciprocalOrZero(d);
  let upper = 0;
  for (let subBlock = 0; subBlock < 8; subBlock++) {
    const multiple = clamp(nearestInt(f(inverse * scales[subBlock]!)), -32, 31);
    const inverseScale = reciprocalOrZero(f(d * multiple)); // of d as computed, not as stored
    for (let i = 0; i < 32; i++) {
      quants[i] = nearestNonlinear(f(inverseScale * src[from + 32 * subBlock + i]!));
    }
    packNibbles(quants, 0, dst, to + 8 + 16 * subBlock);

    const stored = multiple + 32;
    const lowAt = to + 4 + (subBlock >> 1);
    dst[lowAt] = subBlock & 1 ? dst[lowAt]! | ((stored & 15) << 4) : stored & 15;
    upper |= (stored >> 4) << (2 * subBlock);
  }
  dst[to + 2] = upper & 255;
  dst[to + 3] = upper >>> 8;
}
