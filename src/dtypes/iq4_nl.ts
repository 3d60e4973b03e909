// IQ4_NL: 32 values as 4-bit indices of a codebook (nonlinear-codebook.ts), times one half-float scale.
//
//   block, 18 bytes: scale f16 | 16 bytes of nibbles as in q4_0
//   value = scale * nonlinearValues[q]
// quantize() is ggml's quantize_iq4_nl, which writes its files and searches; quantizeRow() is quantize_row_iq4_nl_ref.

import { f16ToF32 } from "../base/half.ts";
import { halfAt, nibblesAt } from "./block.ts";
import { plainSearch, searchedElems } from "./block-search.ts";
import { packNibbles } from "./blocks-of-32.ts";
import type { DType } from "./dtype.ts";
import { reciprocalOrZero, storeF16, weighBlock } from "./float32-math.ts";
import {
  fitNonlinearOnce,
  nearestNonlinear,
  nonlinearCodebook,
  nonlinearValues,
} from "./nonlinear-codebook.ts";
import { newFits } from "./scale-search.ts";

const f = Math.fround;

const quants = new Uint8Array(32);
const weights = new Float32Array(searchedElems);
const fits = newFits(searchedElems / 32);

export const iq4_nl: DType = {
  name: "iq4_nl",
  ggufId: 20,
  blockElems: 32,
  blockBytes: 18,
  activation: "q8_0",
  block: { kind: "quants", scale: halfAt(0), quants: nibblesAt(2), codebook: nonlinearCodebook },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    let from = srcOffset;
    let to = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const scale = f16ToF32(src[from]! | (src[from + 1]! << 8));
      for (let i = 0; i < 16; i++) {
        const pair = src[from + 2 + i]!;
        dst[to + i] = scale * nonlinearValues[pair & 15]!;
        dst[to + 16 + i] = scale * nonlinearValues[pair >> 4]!;
      }
      from += 18;
      to += 32;
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance, search = plainSearch) {
    const atOnce = searchedElems / 32;
    for (let first = 0; first < blocks; first += atOnce) {
      const count = Math.min(atOnce, blocks - first);
      const from = srcOffset + 32 * first;
      for (let block = 0; block < count; block++) {
        weighBlock(
          weights,
          32 * block,
          src,
          from + 32 * block,
          32,
          importance,
          32 * (first + block),
        );
      }
      search.nonlinear(src, from, count, weights, fits);
      for (let block = 0; block < count; block++) {
        const to = dstOffset + 18 * (first + block);
        const scale = fits.scales[block]!;
        const inverse = reciprocalOrZero(scale);
        const at = from + 32 * block;
        for (let i = 0; i < 32; i++) quants[i] = nearestNonlinear(f(inverse * src[at + i]!));
        storeF16(dst, to, scale);
        packNibbles(quants, 0, dst, to + 2);
      }
    }
  },

  quantizeRow(src, srcOffset, dst, dstOffset, blocks) {
    for (let block = 0; block < blocks; block++) {
      const to = dstOffset + 18 * block;
      storeF16(dst, to, fitNonlinearOnce(src, srcOffset + 32 * block, quants));
      packNibbles(quants, 0, dst, to + 2);
    }
  },
};
