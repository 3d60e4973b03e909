// IQ3_XXS: 3.06 bits a weight. Points (of 4) of a 256-entry codebook, 7 + 1 signs for 8 weights.
//
// Block of 256 in 98 bytes:
//   f16 d
//   64 x u8   codebook index: 4 weights each
//   8 x u32   4 x 7 sign bits, 4-bit scale: 32 weights each
// weight = d * (scale + 0.5) / 2 * point * sign. All products fit float32's 24 bits, so no step rounds.

import { f16ToF32 } from "../base/half.ts";
import { dense, halfAt, strided } from "./block.ts";
import { neighboursOf } from "./codebook-neighbours.ts";
import { codebookQuantizer, storeU32 } from "./codebook-search.ts";
import { writeSigned4 } from "./codebook-write.ts";
import { iq3xxsCodebook, paritySigns } from "./codebooks.ts";
import type { DType } from "./dtype.ts";

const tailsAt = 66;

const f = Math.fround;

const quantize = codebookQuantizer({
  name: "iq3_xxs",
  blockBytes: 98,
  fudge: f(1.0125),
  clears: true,
  search: {
    neighbours: neighboursOf(iq3xxsCodebook, 4, 2),
    size: 32,
    steps: 15,
    delta: f(0.2),
    start: "largest",
    zero: f(1e-8),
    evenSigns: true,
    spread: 2,
    weigh: (value) => f(value * value),
    refit: "changed",
  },
  store: (dst, to, { points, signs }, multiples) => {
    for (let i = 0; i < 64; i++) dst[to + 2 + i] = points[i]!;
    for (let subBlock = 0; subBlock < 8; subBlock++) {
      let tail = multiples[subBlock]! << 28;
      for (let l = 0; l < 4; l++) tail |= signs[4 * subBlock + l]! << (7 * l);
      storeU32(dst, to + tailsAt + 4 * subBlock, tail);
    }
  },
});

export const iq3_xxs: DType = {
  name: "iq3_xxs",
  ggufId: 18,
  blockElems: 256,
  blockBytes: 98,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(0),
    scales: { ...strided(32, 4, 8 * 66 + 28, [8, 32]), times: 0.5, plus: 0.25 },
    quants: dense(4, 8, 8 * 2, 64),
    codebook: { size: 4, points: iq3xxsCodebook },
    signs: { ...strided(8, 7, 8 * 66, [4, 7], [8, 32]), isEven: true },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    const codebook = iq3xxsCodebook();
    let out = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const at = srcOffset + block * 98;
      const d = f16ToF32(src[at]! | (src[at + 1]! << 8));
      let index = at + 2;
      for (let subBlock = 0; subBlock < 8; subBlock++) {
        const t = at + tailsAt + 4 * subBlock;
        const tail = src[t]! | (src[t + 1]! << 8) | (src[t + 2]! << 16) | (src[t + 3]! << 24);
        const scale = d * (0.5 + (tail >>> 28)) * 0.5;
        for (let l = 0; l < 4; l++) {
          const signRow = ((tail >>> (7 * l)) & 127) * 8;
          writeSigned4(dst, out, scale, codebook, src[index]! * 4, paritySigns(), signRow);
          writeSigned4(
            dst,
            out + 4,
            scale,
            codebook,
            src[index + 1]! * 4,
            paritySigns(),
            signRow + 4,
          );
          index += 2;
          out += 8;
        }
      }
    }
  },

  quantize,
  needsImportance: "layers",
};
