// IQ3_S: 3.44 bits a weight. Points (of 4) of a 512-entry codebook, all signs stored.
//
// Block of 256 in 110 bytes:
//   f16 d
//   64 x u8   low 8 bits of the codebook index: 4 weights each
//   8 x u8    the ninth bit of eight indices
//   32 x u8   signs: 8 weights each
//   4 x u8    two 4-bit scales: 32 weights each
// weight = d * (2 * scale + 1) * point * sign. All products fit float32's 24 bits, so no step rounds.

import { f16ToF32 } from "../base/half.ts";
import { dense, halfAt } from "./block.ts";
import { neighboursOf } from "./codebook-neighbours.ts";
import { codebookQuantizer, storeNibbles } from "./codebook-search.ts";
import { writeSigned4 } from "./codebook-write.ts";
import { iq3sCodebook, signsOfByte } from "./codebooks.ts";
import type { DType } from "./dtype.ts";

const indexAt = 2;
const highAt = 66;
const signsAt = 74;
const scalesAt = 106;

const f = Math.fround;

const quantize = codebookQuantizer({
  name: "iq3_s",
  blockBytes: 110,
  fudge: f(1.033),
  clears: false,
  search: {
    neighbours: neighboursOf(iq3sCodebook, 4, 3),
    size: 32,
    steps: 9,
    delta: f(0.2),
    start: "largest",
    zero: 2 ** -149,
    evenSigns: false,
    spread: 2,
    weigh: (value) => f(value * value),
    refit: "all-if-changed",
  },
  store: (dst, to, { points, signs }, multiples) => {
    for (let four = 0; four < 64; four++) {
      dst[to + indexAt + four] = points[four]! & 255;
      const at = to + highAt + (four >> 3);
      dst[at] = dst[at]! | ((points[four]! >> 8) << (four & 7));
    }
    dst.set(signs, to + signsAt);
    storeNibbles(dst, to + scalesAt, multiples, 8);
  },
});

export const iq3_s: DType = {
  name: "iq3_s",
  ggufId: 21,
  blockElems: 256,
  blockBytes: 110,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(0),
    scales: { ...dense(32, 4, 8 * 106, 8), times: 2, plus: 1 },
    quants: {
      per: 4,
      pieces: [
        { bits: 8, at: 8 * 2, strides: [[64, 8]] },
        { bits: 1, at: 8 * 66, strides: [[64, 1]], to: 8 },
      ],
    },
    codebook: { size: 4, points: iq3sCodebook },
    signs: dense(8, 8, 8 * 74, 32),
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    const codebook = iq3sCodebook();
    let out = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const at = srcOffset + block * 110;
      const d = f16ToF32(src[at]! | (src[at + 1]! << 8));
      for (let subBlock = 0; subBlock < 8; subBlock++) {
        const nibble = (src[at + scalesAt + (subBlock >> 1)]! >> (4 * (subBlock & 1))) & 15;
        const scale = d * (1 + 2 * nibble);
        const high = src[at + highAt + subBlock]!;
        for (let four = 0; four < 8; four++) {
          const point = src[at + indexAt + 8 * subBlock + four]! | (((high >> four) & 1) << 8);
          const signRow = src[at + signsAt + 4 * subBlock + (four >> 1)]! * 8 + 4 * (four & 1);
          writeSigned4(dst, out, scale, codebook, point * 4, signsOfByte(), signRow);
          out += 4;
        }
      }
    }
  },

  quantize,
};
