// IQ1_S: 1.56 bits a weight. Points of a 2048-entry ternary codebook, shifted by an eighth up or down.
//
// Block of 256 in 50 bytes:
//   f16 d
//   32 x u8   low 8 bits of the codebook index: 8 weights each
//   8 x u16   4 x 3 high index bits, 3-bit scale, sign of the shift: 32 weights each
// weight = d * (2 * scale + 1) * (point +- 1/8). All products fit float32's 24 bits, so no step rounds.

import { f16ToF32 } from "../base/half.ts";
import { halfAt, strided } from "./block.ts";
import { needsImportance } from "./codebook-search.ts";
import { writeShifted8 } from "./codebook-write.ts";
import { iq1sCodebook } from "./codebooks.ts";
import type { DType } from "./dtype.ts";
import { storeF16 } from "./float32-math.ts";
import {
  fitTernary,
  roundTernaryScales,
  type TernarySearch,
  ternaryFits,
} from "./ternary-search.ts";

const f = Math.fround;

const highAt = 34;
const search: TernarySearch = { size: 32, zero: f(1e-12), halves: false };
const multiples = new Uint8Array(8);

export const iq1_s: DType = {
  name: "iq1_s",
  ggufId: 19,
  blockElems: 256,
  blockBytes: 50,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(0),
    scales: { ...strided(32, 3, 8 * 34 + 12, [8, 16]), times: 2, plus: 1 },
    quants: {
      per: 8,
      pieces: [
        { bits: 8, at: 8 * 2, strides: [[32, 8]] },
        {
          bits: 3,
          at: 8 * 34,
          strides: [
            [4, 3],
            [8, 16],
          ],
          to: 8,
        },
      ],
    },
    codebook: { size: 8, points: iq1sCodebook },
    shift: { ...strided(32, 1, 8 * 34 + 15, [8, 16]), by: 0.125 },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    const codebook = iq1sCodebook();
    let out = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const at = srcOffset + block * 50;
      const d = f16ToF32(src[at]! | (src[at + 1]! << 8));
      for (let subBlock = 0; subBlock < 8; subBlock++) {
        const high = src[at + highAt + 2 * subBlock]! | (src[at + highAt + 2 * subBlock + 1]! << 8);
        const scale = d * (2 * ((high >> 12) & 7) + 1);
        const shift = high & 0x8000 ? -0.125 : 0.125;
        for (let l = 0; l < 4; l++) {
          const point = src[at + 2 + 4 * subBlock + l]! | (((high >> (3 * l)) & 7) << 8);
          writeShifted8(dst, out, scale, codebook, point * 8, shift);
          out += 8;
        }
      }
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks, importance) {
    if (!importance) throw needsImportance("iq1_s");
    const { points, shifts } = ternaryFits;
    for (let block = 0; block < blocks; block++) {
      const to = dstOffset + block * 50;
      const column = (256 * block) % importance.length;
      fitTernary(search, src, srcOffset + 256 * block, importance, column);
      const d = roundTernaryScales(8, multiples);
      storeF16(dst, to, f(d * 1.125)); // ggml's factor, found by trying
      for (let subBlock = 0; subBlock < 8; subBlock++) {
        let high = d === 0 ? 0 : (multiples[subBlock]! | (shifts[subBlock]! << 3)) << 12;
        for (let l = 0; l < 4; l++) {
          const point = points[4 * subBlock + l]!;
          dst[to + 2 + 4 * subBlock + l] = point & 255;
          high |= (point >> 8) << (3 * l);
        }
        dst[to + highAt + 2 * subBlock] = high & 255;
        dst[to + highAt + 2 * subBlock + 1] = high >> 8;
      }
    }
  },
  needsImportance: "always",
};
