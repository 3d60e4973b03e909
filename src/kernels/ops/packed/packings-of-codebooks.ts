// Packings of the types with codebooks of points (IQ1, IQ2, IQ3). The points are expanded: every value, with its sign, is one
// of 6 or 16 values, so that a quant needs 3 or 4 bits and a lookup. That is more than the 1.6 to 3.4 bits of the file, but
// less than bytes. The header of each dtype's file has its layout.

import { f16ToF32 } from "../../../base/half.ts";
import {
  type Codebook,
  iq1sCodebook,
  iq2sCodebook,
  iq2xsCodebook,
  iq2xxsCodebook,
  iq3sCodebook,
  iq3xxsCodebook,
  paritySigns,
  signsOfByte,
} from "../../../dtypes/codebooks.ts";
import type { QuantLayout } from "./packed.ts";
import { half, type Packing, raisedCodebook, spanLayout } from "./packing.ts";

/** A word for every four elements of a table, made at first use as codebooks are. */
function wordsOf(table: Codebook, byteOf: (value: number) => number): () => Uint32Array {
  let words: Uint32Array | undefined;
  return () => {
    if (!words) {
      const values = table();
      words = new Uint32Array(values.length / 4);
      for (let i = 0; i < values.length; i++) words[i >> 2]! |= byteOf(values[i]!) << (8 * (i & 3));
    }
    return words;
  };
}

/** 0xff in every byte whose sign is negative. */
const parityMasks = wordsOf(paritySigns, (sign) => (sign < 0 ? 0xff : 0));
const byteMasks = wordsOf(signsOfByte, (sign) => (sign < 0 ? 0xff : 0));

/** An expanded codebook: the values that quants stand for, and the words of quants of its points. */
interface Book {
  readonly layout: QuantLayout;
  readonly codebook: Int8Array;
  /** The quants of four values of a point, by the number of the four among all. */
  words(): Uint32Array;
  /** The quants of v and of -v add up to this, in each byte. */
  readonly mirror: number;
}

/** Quants negated where the mask has ones. Reads look words up themselves: a call through the book takes twice as long. */
function signed(word: number, negative: number, mirror: number): number {
  return (word & ~negative) | ((mirror - word) & negative);
}

/** A codebook of magnitudes, expanded with both signs. */
function signedBook(points: Codebook, magnitudes: readonly number[], bits: 3 | 4): Book {
  const values = [...magnitudes.map((m) => -m).reverse(), ...magnitudes];
  const { offset, codebook } = raisedCodebook(values);
  const positive = wordsOf(points, (value) => values.indexOf(value));
  const mirror = (values.length - 1) * 0x01010101; // quant q negated is values.length - 1 - q
  return {
    layout: { ...spanLayout, bits, offset, lookup: true },
    codebook,
    words: positive,
    mirror,
  };
}

const xxs2 = signedBook(iq2xxsCodebook, [8, 25, 43], 3);
const xs2 = signedBook(iq2xsCodebook, [8, 25, 43], 3);
const s2 = signedBook(iq2sCodebook, [8, 25, 43], 3);
const xxs3 = signedBook(iq3xxsCodebook, [4, 12, 20, 28, 36, 44, 52, 62], 4);
const s3 = signedBook(iq3sCodebook, [1, 3, 5, 7, 9, 11, 13, 15], 4);

// In all of these types, a scale is (2 n + 1) times a fraction of d.

export const iq2_xxs: Packing = {
  layout: () => xxs2.layout,
  codebook: () => xxs2.codebook,
  activationSpan: 8,
  spanBytes: 66,
  read(view, at, span) {
    const masks = parityMasks();
    const words = xxs2.words();
    const { mirror } = xxs2;
    span.header[0] = half(view, at) / 8;
    for (let block = 0; block < 8; block++) {
      const group = at + 2 + 8 * block;
      const tail = view.getUint32(group + 4, true);
      span.smallScales[block] = 2 * (tail >>> 28) + 1;
      for (let v = 0; v < 8; v++) {
        const point = view.getUint8(group + (v >> 1));
        const signs = (tail >>> (7 * (v >> 1))) & 127;
        span.quants[8 * block + v] = signed(
          words[2 * point + (v & 1)]!,
          masks[2 * signs + (v & 1)]!,
          mirror,
        );
      }
    }
  },
};

export const iq2_xs: Packing = {
  layout: () => ({ ...xs2.layout, scaleCols: 16 }),
  codebook: () => xs2.codebook,
  activationSpan: 8,
  spanBytes: 74,
  read(view, at, span) {
    const masks = parityMasks();
    const words = xs2.words();
    const { mirror } = xs2;
    span.header[0] = half(view, at) / 8;
    for (let i = 0; i < 16; i++) {
      span.smallScales[i] = 2 * ((view.getUint8(at + 66 + (i >> 1)) >> (4 * (i & 1))) & 15) + 1;
    }
    for (let v = 0; v < 64; v++) {
      const code = view.getUint16(at + 2 + 2 * (v >> 1), true);
      const side = v & 1;
      span.quants[v] = signed(
        words[2 * (code & 511) + side]!,
        masks[2 * (code >> 9) + side]!,
        mirror,
      );
    }
  },
};

export const iq2_s: Packing = {
  layout: () => ({ ...s2.layout, scaleCols: 16 }),
  codebook: () => s2.codebook,
  activationSpan: 8,
  spanBytes: 82,
  read(view, at, span) {
    const masks = byteMasks();
    const words = s2.words();
    const { mirror } = s2;
    span.header[0] = half(view, at) / 8;
    for (let i = 0; i < 16; i++) {
      span.smallScales[i] = 2 * ((view.getUint8(at + 74 + (i >> 1)) >> (4 * (i & 1))) & 15) + 1;
    }
    for (let v = 0; v < 64; v++) {
      const eight = v >> 1;
      const high = (view.getUint8(at + 66 + (eight >> 2)) >> (2 * (eight & 3))) & 3;
      const point = view.getUint8(at + 2 + eight) | (high << 8);
      const signs = view.getUint8(at + 34 + eight);
      span.quants[v] = signed(words[2 * point + (v & 1)]!, masks[2 * signs + (v & 1)]!, mirror);
    }
  },
};

export const iq3_xxs: Packing = {
  layout: () => xxs3.layout,
  codebook: () => xxs3.codebook,
  activationSpan: 8,
  spanBytes: 98,
  read(view, at, span) {
    const masks = parityMasks();
    const words = xxs3.words();
    const { mirror } = xxs3;
    span.header[0] = half(view, at) / 4;
    for (let block = 0; block < 8; block++) {
      const tail = view.getUint32(at + 66 + 4 * block, true);
      span.smallScales[block] = 2 * (tail >>> 28) + 1;
      for (let v = 0; v < 8; v++) {
        const point = view.getUint8(at + 2 + 8 * block + v);
        const signs = (tail >>> (7 * (v >> 1))) & 127;
        span.quants[8 * block + v] = signed(words[point]!, masks[2 * signs + (v & 1)]!, mirror);
      }
    }
  },
};

export const iq3_s: Packing = {
  layout: () => s3.layout,
  codebook: () => s3.codebook,
  activationSpan: 8,
  spanBytes: 110,
  read(view, at, span) {
    const masks = byteMasks();
    const words = s3.words();
    const { mirror } = s3;
    span.header[0] = half(view, at);
    for (let block = 0; block < 8; block++) {
      const nibble = (view.getUint8(at + 106 + (block >> 1)) >> (4 * (block & 1))) & 15;
      span.smallScales[block] = 2 * nibble + 1;
      const high = view.getUint8(at + 66 + block);
      for (let v = 0; v < 8; v++) {
        const point = view.getUint8(at + 2 + 8 * block + v) | (((high >> v) & 1) << 8);
        const signs = view.getUint8(at + 74 + 4 * block + (v >> 1));
        span.quants[8 * block + v] = signed(words[point]!, masks[2 * signs + (v & 1)]!, mirror);
      }
    }
  },
};

// IQ1: -1, 0 or 1, plus or minus an eighth. In eighths these are six values, alternating between shift down and shift up.
const eighths = raisedCodebook([-9, -7, -1, 1, 7, 9]);

const shiftedDown = wordsOf(iq1sCodebook, (value) => 2 * (value + 1));

/** Added to the quants of a point that is shifted up. */
const UP = 0x01010101;

const iq1Layout: QuantLayout = { ...spanLayout, bits: 3, offset: eighths.offset, lookup: true };

export const iq1_s: Packing = {
  layout: () => iq1Layout,
  codebook: () => eighths.codebook,
  activationSpan: 8,
  spanBytes: 50,
  read(view, at, span) {
    const words = shiftedDown();
    span.header[0] = half(view, at) / 8;
    for (let block = 0; block < 8; block++) {
      const high = view.getUint16(at + 34 + 2 * block, true);
      span.smallScales[block] = 2 * ((high >> 12) & 7) + 1;
      const up = 1 - (high >> 15);
      for (let v = 0; v < 8; v++) {
        const eight = v >> 1;
        const low = view.getUint8(at + 2 + 4 * block + eight);
        const point = low | (((high >> (3 * eight)) & 7) << 8);
        span.quants[8 * block + v] = words[2 * point + (v & 1)]! + up * UP;
      }
    }
  },
};

export const iq1_m: Packing = {
  layout: () => ({ ...iq1Layout, scaleCols: 16 }),
  codebook: () => eighths.codebook,
  activationSpan: 8,
  spanBytes: 56,
  read(view, at, span) {
    const words = shiftedDown();
    // d is in the top nibbles of four words; each word's other 12 bits are four scales.
    let dBits = 0;
    for (let j = 0; j < 4; j++) {
      const word = view.getUint16(at + 48 + 2 * j, true);
      dBits |= (word >> 12) << (4 * j);
      for (let i = 0; i < 4; i++) span.smallScales[4 * j + i] = 2 * ((word >> (3 * i)) & 7) + 1;
    }
    span.header[0] = f16ToF32(dBits) / 8;
    for (let v = 0; v < 64; v++) {
      const eight = v >> 1;
      const high = view.getUint8(at + 32 + (eight >> 1)) >> (4 * (eight & 1));
      const point = view.getUint8(at + eight) | ((high & 7) << 8);
      span.quants[v] = words[2 * point + (v & 1)]! + (1 - ((high >> 3) & 1)) * UP;
    }
  },
};
