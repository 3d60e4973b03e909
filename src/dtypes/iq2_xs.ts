// IQ2_XS: 2.31 bits a weight. Points of a 512-entry codebook, 7 + 1 signs, a scale for every 16 weights.
//
// Block of 256 in 74 bytes:
//   f16 d
//   32 x u16    9-bit codebook index, 7 sign bits: 8 weights each
//   8 x u8      two 4-bit scales: 16 weights each
// weight = d * (scale + 0.5) / 4 * point * sign. All products fit float32's 24 bits, so no step rounds.

import { f16ToF32 } from "../base/half.ts";
import { dense, halfAt, strided } from "./block.ts";
import { neighboursOf } from "./codebook-neighbours.ts";
import { codebookQuantizer, storeNibbles } from "./codebook-search.ts";
import { writeSigned8 } from "./codebook-write.ts";
import { iq2xsCodebook, paritySigns } from "./codebooks.ts";
import type { DType } from "./dtype.ts";
import { zeroBlock } from "./scale-search.ts";

const scalesAt = 66;

const f = Math.fround;

const quantize = codebookQuantizer({
  name: "iq2_xs",
  blockBytes: 74,
  fudge: 1,
  clears: true,
  search: {
    neighbours: neighboursOf(iq2xsCodebook, 8, 2),
    size: 16,
    steps: 9,
    delta: f(0.1),
    start: "largest",
    zero: zeroBlock,
    evenSigns: true,
    spread: 1,
    weigh: undefined,
    refit: "changed",
  },
  store: (dst, to, { points, signs }, multiples) => {
    for (let eight = 0; eight < 32; eight++) {
      const pair = points[eight]! | (signs[eight]! << 9);
      dst[to + 2 + 2 * eight] = pair & 255;
      dst[to + 3 + 2 * eight] = pair >> 8;
    }
    storeNibbles(dst, to + scalesAt, multiples, 16);
  },
});

export const iq2_xs: DType = {
  name: "iq2_xs",
  ggufId: 17,
  blockElems: 256,
  blockBytes: 74,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(0),
    scales: { ...dense(16, 4, 8 * 66, 16), times: 0.25, plus: 0.125 },
    quants: strided(8, 9, 16, [32, 16]),
    codebook: { size: 8, points: iq2xsCodebook },
    signs: { ...strided(8, 7, 25, [32, 16]), isEven: true },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    const codebook = iq2xsCodebook();
    let out = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const at = srcOffset + block * 74;
      const d = f16ToF32(src[at]! | (src[at + 1]! << 8));
      for (let half = 0; half < 16; half++) {
        const nibble = (src[at + scalesAt + (half >> 1)]! >> (4 * (half & 1))) & 15;
        const scale = d * (0.5 + nibble) * 0.25;
        for (let l = 0; l < 2; l++) {
          const pair = at + 2 + 4 * half + 2 * l;
          const code = src[pair]! | (src[pair + 1]! << 8);
          writeSigned8(dst, out, scale, codebook, (code & 511) * 8, paritySigns(), (code >> 9) * 8);
          out += 8;
        }
      }
    }
  },

  quantize,
  needsImportance: "always",
};
