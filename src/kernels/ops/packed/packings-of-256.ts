// Packings of the types with super-blocks of 256 whose quants are numbers or indices of a small codebook: the K types, IQ4_XS
// and the ternary types. The header of each dtype's file has its layout.

import { nonlinearValues } from "../../../dtypes/nonlinear-codebook.ts";
import {
  anySigned,
  half,
  NIBBLES,
  type Packing,
  raised,
  readNibbles,
  type Span,
  spanLayout,
} from "./packing.ts";

const TWO_BITS = 0x03030303;

/** The 6-bit scales and mins of Q4_K and Q5_K: 12 bytes at `at`. */
function readPackedScales(view: DataView, at: number, { smallScales, smallMins }: Span): void {
  for (let j = 0; j < 4; j++) {
    const low = view.getUint8(at + j);
    const mid = view.getUint8(at + 4 + j);
    const top = view.getUint8(at + 8 + j);
    smallScales[j] = low & 63;
    smallMins[j] = mid & 63;
    smallScales[j + 4] = (top & 15) | ((low >> 6) << 4);
    smallMins[j + 4] = (top >> 4) | ((mid >> 6) << 4);
  }
}

/** Word v of a block's lower two bits: 64 bytes at `at`, of which each half holds four interleaved blocks. */
function twoBits(view: DataView, at: number, block: number, v: number): number {
  const word = view.getUint32(at + 32 * (block >> 2) + 4 * v, true);
  return (word >>> (2 * (block & 3))) & TWO_BITS;
}

export const q2_k: Packing = {
  layout: () => ({ ...spanLayout, bits: 2, hasMin: true, scales: "nibbles", scaleCols: 16 }),
  activationSpan: 8,
  spanBytes: 84,
  read(view, at, span) {
    span.header[0] = half(view, at + 80);
    span.header[1] = -half(view, at + 82);
    for (let i = 0; i < 16; i++) {
      const pair = view.getUint8(at + i);
      span.smallScales[i] = pair & 15;
      span.smallMins[i] = pair >> 4;
    }
    for (let i = 0; i < 64; i++) span.quants[i] = twoBits(view, at + 16, i >> 3, i & 7);
  },
};

export const q3_k: Packing = {
  layout: () => ({ ...spanLayout, bits: 3, offset: 4, scaleCols: 16 }),
  activationSpan: 8,
  spanBytes: 110,
  read(view, at, span) {
    span.header[0] = half(view, at + 108);
    for (let i = 0; i < 16; i++) {
      const low = view.getUint8(at + 96 + (i & 7)) >> (4 * (i >> 3));
      const high = view.getUint8(at + 104 + (i & 3)) >> (2 * (i >> 2));
      span.smallScales[i] = ((low & 15) | ((high & 3) << 4)) - 32;
    }
    for (let i = 0; i < 64; i++) {
      const [block, v] = [i >> 3, i & 7];
      const third = (view.getUint32(at + 4 * v, true) >>> block) & 0x01010101;
      span.quants[i] = twoBits(view, at + 32, block, v) | (third << 2);
    }
  },
};

export const q4_k: Packing = {
  layout: () => ({ ...spanLayout, hasMin: true }),
  activationSpan: 8,
  spanBytes: 144,
  read(view, at, span) {
    span.header[0] = half(view, at);
    span.header[1] = -half(view, at + 2);
    readPackedScales(view, at + 4, span);
    // 32 bytes hold two blocks: the low nibbles one, the high nibbles the next.
    for (let pair = 0; pair < 4; pair++) {
      for (let v = 0; v < 8; v++) {
        const word = view.getUint32(at + 16 + 32 * pair + 4 * v, true);
        span.quants[16 * pair + v] = word & NIBBLES;
        span.quants[16 * pair + 8 + v] = (word >>> 4) & NIBBLES;
      }
    }
  },
};

export const q5_k: Packing = {
  layout: () => ({ ...spanLayout, bits: 5, hasMin: true }),
  activationSpan: 8,
  spanBytes: 176,
  read(view, at, span) {
    span.header[0] = half(view, at);
    span.header[1] = -half(view, at + 2);
    readPackedScales(view, at + 4, span);
    for (let block = 0; block < 8; block++) {
      const low = at + 48 + 32 * (block >> 1);
      for (let v = 0; v < 8; v++) {
        const word = view.getUint32(low + 4 * v, true) >>> (4 * (block & 1));
        const bits = (view.getUint32(at + 16 + 4 * v, true) >>> block) & 0x01010101;
        span.quants[8 * block + v] = (word & NIBBLES) | (bits << 4);
      }
    }
  },
};

export const q6_k: Packing = {
  layout: () => ({ ...spanLayout, bits: 6, offset: 32, scaleCols: 16 }),
  activationSpan: 8,
  spanBytes: 210,
  read(view, at, span) {
    span.header[0] = half(view, at + 208);
    for (let i = 0; i < 16; i++) span.smallScales[i] = view.getInt8(at + 192 + i);
    // Each half of the span: 64 bytes of low bits, 32 bytes of high bits, four blocks.
    for (let block = 0; block < 8; block++) {
      const [side, quarter] = [block >> 2, block & 3];
      const low = at + 64 * side + 32 * (quarter & 1);
      for (let v = 0; v < 8; v++) {
        const word = view.getUint32(low + 4 * v, true) >>> (4 * (quarter >> 1));
        span.quants[8 * block + v] = (word & NIBBLES) | (twoBits(view, at + 128, block, v) << 4);
      }
    }
  },
};

export const iq4_xs: Packing = {
  layout: (dot4) => anySigned({ ...spanLayout, lookup: true }, dot4),
  codebook: (dot4) => Int8Array.from(nonlinearValues, (value) => value + raised(dot4)),
  activationSpan: 8,
  spanBytes: 136,
  read(view, at, span) {
    span.header[0] = half(view, at);
    const upper = view.getUint16(at + 2, true);
    for (let block = 0; block < 8; block++) {
      const low = (view.getUint8(at + 4 + (block >> 1)) >> (4 * (block & 1))) & 15;
      span.smallScales[block] = (low | (((upper >> (2 * block)) & 3) << 4)) - 32;
      readNibbles(view, at + 8 + 16 * block, span.quants, block);
    }
  },
};

/** One scale for all 256: the small ones are 1. */
export const tq2_0: Packing = {
  layout: () => ({ ...spanLayout, bits: 2, offset: 1 }),
  activationSpan: 8,
  spanBytes: 66,
  read(view, at, span) {
    span.header[0] = half(view, at + 64);
    span.smallScales.fill(1);
    for (let i = 0; i < 64; i++) span.quants[i] = twoBits(view, at, i >> 3, i & 7);
  },
};

/** fiveDigits[byte] has digit n of a byte at bits 2n and 2n + 1. */
const fiveDigits = Uint16Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  let digits = 0;
  for (let n = 0; n < 5; n++) {
    rest *= 3;
    digits |= (rest >> 8) << (2 * n);
    rest &= 255;
  }
  return digits;
});

/** Ranges of bytes whose digits are as many columns apart as there are bytes: [first byte, bytes, digits, first column]. */
const tq1Runs = [
  [0, 32, 5, 0],
  [32, 16, 5, 160],
  [48, 4, 4, 240],
] as const;

export const tq1_0: Packing = {
  layout: tq2_0.layout,
  activationSpan: 8,
  spanBytes: 54,
  read(view, at, { header, smallScales, quants }) {
    header[0] = half(view, at + 52);
    smallScales.fill(1);
    quants.fill(0);
    for (const [first, bytes, digits, start] of tq1Runs) {
      for (let m = 0; m < bytes; m++) {
        const five = fiveDigits[view.getUint8(at + first + m)]!;
        for (let n = 0; n < digits; n++) {
          const col = start + n * bytes + m;
          quants[col >> 2]! |= ((five >> (2 * n)) & 3) << (8 * (col & 3));
        }
      }
    }
  },
};
