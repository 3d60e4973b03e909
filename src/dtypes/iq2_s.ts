// IQ2_S: 2.56 bits a weight. Points of a 1024-entry codebook, all 8 signs stored, a scale for every 16 weights.
//
// Block of 256 in 82 bytes:
//   f16 d
//   32 x u8   low 8 bits of the codebook index: 8 weights each
//   32 x u8   signs: 8 weights each
//   8 x u8    high 2 bits of four indices
//   8 x u8    two 4-bit scales: 16 weights each
// weight = d * (scale + 0.5) / 4 * point * sign. All products fit float32's 24 bits, so no step rounds.

import { f16ToF32 } from "../base/half.ts";
import { dense, halfAt } from "./block.ts";
import { neighboursOf } from "./codebook-neighbours.ts";
import { codebookQuantizer, storeNibbles } from "./codebook-search.ts";
import { writeSigned8 } from "./codebook-write.ts";
import { iq2sCodebook, signsOfByte } from "./codebooks.ts";
import type { DType } from "./dtype.ts";

const indexAt = 2;
const signsAt = 34;
const highAt = 66;
const scalesAt = 74;

const f = Math.fround;

const quantize = codebookQuantizer({
  name: "iq2_s",
  blockBytes: 82,
  fudge: f(0.9875),
  clears: false,
  search: {
    neighbours: neighboursOf(iq2sCodebook, 8, 1),
    size: 16,
    steps: 9,
    delta: f(0.1),
    start: "largest",
    zero: f(1e-8),
    evenSigns: false,
    spread: 2,
    weigh: (value, sigma2) => f(f(0.25 * sigma2) + f(value * value)),
    refit: "changed",
  },
  store: (dst, to, { points, signs }, multiples) => {
    for (let eight = 0; eight < 32; eight++) {
      dst[to + indexAt + eight] = points[eight]! & 255;
      dst[to + signsAt + eight] = signs[eight]!;
      const at = to + highAt + (eight >> 2);
      dst[at] = dst[at]! | ((points[eight]! >> 8) << (2 * (eight & 3)));
    }
    storeNibbles(dst, to + scalesAt, multiples, 16);
  },
});

export const iq2_s: DType = {
  name: "iq2_s",
  ggufId: 22,
  blockElems: 256,
  blockBytes: 82,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(0),
    scales: { ...dense(16, 4, 8 * 74, 16), times: 0.25, plus: 0.125 },
    quants: {
      per: 8,
      pieces: [
        { bits: 8, at: 8 * 2, strides: [[32, 8]] },
        { bits: 2, at: 8 * 66, strides: [[32, 2]], to: 8 },
      ],
    },
    codebook: { size: 8, points: iq2sCodebook },
    signs: dense(8, 8, 8 * 34, 32),
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    const codebook = iq2sCodebook();
    let out = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const at = srcOffset + block * 82;
      const d = f16ToF32(src[at]! | (src[at + 1]! << 8));
      for (let eight = 0; eight < 32; eight++) {
        const subBlock = eight >> 2;
        const nibble = (src[at + scalesAt + subBlock]! >> (2 * (eight & 2))) & 15;
        const high = (src[at + highAt + subBlock]! >> (2 * (eight & 3))) & 3;
        const point = src[at + indexAt + eight]! | (high << 8);
        const scale = d * (0.5 + nibble) * 0.25;
        const signRow = src[at + signsAt + eight]! * 8;
        writeSigned8(dst, out, scale, codebook, point * 8, signsOfByte(), signRow);
        out += 8;
      }
    }
  },

  quantize,
  needsImportance: "layers",
};
