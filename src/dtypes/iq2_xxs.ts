// IQ2_XXS: 2.06 bits a weight. Points of a 256-entry codebook with 7 + 1 signs; used by 1- to 2-bit model files.
//
// Block of 256 in 66 bytes:
//   f16 d
//   8 x (4 codebook indices, u32: 4 x 7 sign bits, 4-bit scale)   a sub-block of 32 weights each
// weight = d * (scale + 0.5) / 4 * point * sign. All products fit float32's 24 bits, so no step rounds.

import { f16ToF32 } from "../base/half.ts";
import { halfAt, strided } from "./block.ts";
import { neighboursOf } from "./codebook-neighbours.ts";
import { codebookQuantizer, storeU32 } from "./codebook-search.ts";
import { writeSigned8 } from "./codebook-write.ts";
import { iq2xxsCodebook, paritySigns } from "./codebooks.ts";
import type { DType } from "./dtype.ts";
import { zeroBlock } from "./scale-search.ts";

const f = Math.fround;

const quantize = codebookQuantizer({
  name: "iq2_xxs",
  blockBytes: 66,
  fudge: 1,
  clears: true,
  search: {
    neighbours: neighboursOf(iq2xxsCodebook, 8, 2),
    size: 32,
    steps: 6,
    delta: f(0.1),
    start: "positive",
    zero: zeroBlock,
    evenSigns: true,
    spread: 1,
    weigh: undefined,
    refit: "all",
  },
  store: (dst, to, { points, signs }, multiples) => {
    for (let subBlock = 0; subBlock < 8; subBlock++) {
      const at = to + 2 + 8 * subBlock;
      let tail = multiples[subBlock]! << 28;
      for (let l = 0; l < 4; l++) {
        dst[at + l] = points[4 * subBlock + l]!;
        tail |= signs[4 * subBlock + l]! << (7 * l);
      }
      storeU32(dst, at + 4, tail);
    }
  },
});

export const iq2_xxs: DType = {
  name: "iq2_xxs",
  ggufId: 16,
  blockElems: 256,
  blockBytes: 66,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(0),
    scales: { ...strided(32, 4, 76, [8, 64]), times: 0.25, plus: 0.125 },
    quants: strided(8, 8, 16, [4, 8], [8, 64]),
    codebook: { size: 8, points: iq2xxsCodebook },
    signs: { ...strided(8, 7, 48, [4, 7], [8, 64]), isEven: true },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    const codebook = iq2xxsCodebook();
    let at = srcOffset;
    let out = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const d = f16ToF32(src[at]! | (src[at + 1]! << 8));
      at += 2;
      for (let subBlock = 0; subBlock < 8; subBlock++) {
        const tail =
          src[at + 4]! | (src[at + 5]! << 8) | (src[at + 6]! << 16) | (src[at + 7]! << 24);
        const scale = d * (0.5 + (tail >>> 28)) * 0.25;
        for (let l = 0; l < 4; l++) {
          const signRow = ((tail >>> (7 * l)) & 127) * 8;
          writeSigned8(dst, out, scale, codebook, src[at + l]! * 8, paritySigns(), signRow);
          out += 8;
        }
        at += 8;
      }
    }
  },

  quantize,
  needsImportance: "always",
};
