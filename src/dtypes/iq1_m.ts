// IQ1_M: 1.75 bits a weight. The codebook of IQ1_S with a scale for every 16 weights and a shift for every 8.
//
// Block of 256 in 56 bytes; d has no field of its own:
//   32 x u8   low 8 bits of the codebook index: 8 weights each
//   16 x u8   two nibbles, 8 weights each: 3 high index bits, sign of the shift
//   4 x u16   4 x 3-bit scale (16 weights each), and in the top 4 bits a quarter of the f16 d, lowest quarter first
// weight = d * (2 * scale + 1) * (point +- 1/8). All products fit float32's 24 bits, so no step rounds.

import { f16ToF32 } from "../base/half.ts";
import { strided } from "./block.ts";
import { writeShifted8 } from "./codebook-write.ts";
import { iq1sCodebook } from "./codebooks.ts";
import type { DType } from "./dtype.ts";

const highAt = 32;
const scalesAt = 48;

export const iq1_m: DType = {
  name: "iq1_m",
  ggufId: 29,
  blockElems: 256,
  blockBytes: 56,
  activation: "q8_k",
  block: {
    kind: "quants",
    // A half float in four pieces: the top nibbles of the four u16.
    scale: {
      format: "f16",
      pieces: [0, 1, 2, 3].map((j) => ({ bits: 4, at: 8 * 48 + 12 + 16 * j, to: 4 * j })),
    },
    scales: { ...strided(16, 3, 8 * 48, [4, 3], [4, 16]), times: 2, plus: 1 },
    quants: {
      per: 8,
      pieces: [
        { bits: 8, at: 0, strides: [[32, 8]] },
        { bits: 3, at: 8 * 32, strides: [[32, 4]], to: 8 },
      ],
    },
    codebook: { size: 8, points: iq1sCodebook },
    shift: { ...strided(8, 1, 8 * 32 + 3, [32, 4]), by: 0.125 },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    const codebook = iq1sCodebook();
    let out = dstOffset;
    for (let block = 0; block < blocks; block++) {
      const at = srcOffset + block * 56;
      const top = at + scalesAt + 1; // high byte of the first u16
      const dBits =
        (src[top]! >> 4) |
        (src[top + 2]! & 0xf0) |
        ((src[top + 4]! & 0xf0) << 4) |
        ((src[top + 6]! & 0xf0) << 8);
      const d = f16ToF32[dBits]!;
      for (let eight = 0; eight < 32; eight++) {
        const pair = at + scalesAt + 2 * (eight >> 3);
        const scales = src[pair]! | (src[pair + 1]! << 8);
        const scale = d * (2 * ((scales >> (3 * ((eight >> 1) & 3))) & 7) + 1);
        const high = src[at + highAt + (eight >> 1)]! >> (4 * (eight & 1));
        const point = src[at + eight]! | ((high & 7) << 8);
        writeShifted8(dst, out, scale, codebook, point * 8, high & 8 ? -0.125 : 0.125);
        out += 8;
      }
    }
  },
};
