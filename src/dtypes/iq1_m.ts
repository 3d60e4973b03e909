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
import { storeF16 } from "./float32-math.ts";
import {
  fitTernary,
  roundTernaryScales,
  type TernarySearch,
  ternaryFits,
  ternaryNeighbours,
} from "./ternary-search.ts";
import { shiftedValues } from "./ternary-split.ts";

const f = Math.fround;

const highAt = 32;
const scalesAt = 48;
const search: TernarySearch = { size: 16, zero: f(1e-7), halves: true };
const multiples = new Uint8Array(16);
const half = new Uint8Array(2);

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
      const d = f16ToF32(dBits);
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

  quantize(src, srcOffset, dst, dstOffset, blocks, importance) {
    const { points, shifts } = ternaryFits;
    for (let block = 0; block < blocks; block++) {
      const to = dstOffset + block * 56;
      const from = srcOffset + 256 * block;
      const column = importance ? (256 * block) % importance.length : 0;
      fitTernary(search, src, from, importance, column);
      const first = roundTernaryScales(16, multiples);
      const isStored = first !== 0;
      dst.fill(0, to + highAt, to + 56);
      for (let eight = 0; eight < 32; eight++) {
        const subBlock = eight >> 1;
        // The first eight's shift is bit 1, the second's bit 0.
        const shift = isStored ? (shifts[subBlock]! >> (1 - (eight & 1))) & 1 : 0;
        dst[to + eight] = points[eight]! & 255;
        const at = to + highAt + subBlock;
        dst[at] = dst[at]! | (((points[eight]! >> 8) | (shift << 3)) << (4 * (eight & 1)));
      }
      if (!isStored) continue;
      for (let subBlock = 0; subBlock < 16; subBlock++) {
        orU16(
          dst,
          to + scalesAt + 2 * (subBlock >> 2),
          multiples[subBlock]! << (3 * (subBlock & 3)),
        );
      }
      const bits = storeF16(half, 0, f(refittedScale(src, from, first) * f(1.1125))); // ggml's factor, found by trying
      for (let j = 0; j < 4; j++) orU16(dst, to + scalesAt + 2 * j, ((bits >> (4 * j)) & 15) << 12);
    }
  },
  needsImportance: "layers",
};

function orU16(dst: Uint8Array, at: number, bits: number): void {
  dst[at] = dst[at]! | (bits & 255);
  dst[at + 1] = dst[at + 1]! | (bits >> 8);
}

/** The block's scale that fits best with the points and multiples as they are stored. */
function refittedScale(src: Float32Array, from: number, scale: number): number {
  const { points, shifts, weights } = ternaryFits;
  const { digits } = ternaryNeighbours();
  let sumQX = 0;
  let sumQQ = 0;
  for (let i = 0; i < 256; i++) {
    const shifted = shiftedValues(shifts[i >> 4]!, (i & 8) !== 0);
    const digit = digits[8 * points[i >> 3]! + (i & 7)]!;
    const q = f(shifted[digit]! * (2 * multiples[i >> 4]! + 1));
    const weighted = f(weights[i]! * q);
    sumQX = f(sumQX + f(weighted * src[from + i]!));
    sumQQ = f(sumQQ + f(weighted * q));
  }
  return sumQQ > 0 && !Number.isNaN(scale) ? f(sumQX / sumQQ) : scale;
}
