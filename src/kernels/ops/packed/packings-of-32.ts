// Packings of the types with blocks of 32: a scale, perhaps a min, and quants.

import { nonlinearValues } from "../../../dtypes/nonlinear-codebook.ts";
import {
  anySigned,
  blockLayout,
  NIBBLES,
  type Packing,
  raised,
  raisedCodebook,
  readNibbles,
} from "./packing.ts";

/** Four bits (columns 4v..4v+3 of a 32-bit mask) as bit 4 of four bytes. */
const spreadBit4 = Uint32Array.from({ length: 16 }, (_, bits) => {
  return ((bits & 1) << 4) | ((bits & 2) << 11) | ((bits & 4) << 18) | ((bits & 8) << 25);
});

/** Nibbles at `at`, fifth bits in `high`. */
function readFiveBits(view: DataView, at: number, high: number, quants: Uint32Array): void {
  for (let v = 0; v < 4; v++) {
    const word = view.getUint32(at + 4 * v, true);
    quants[v] = (word & NIBBLES) | spreadBit4[(high >>> (4 * v)) & 15]!;
    quants[v + 4] = ((word >>> 4) & NIBBLES) | spreadBit4[(high >>> (16 + 4 * v)) & 15]!;
  }
}

export const q4_0: Packing = {
  layout: () => ({ ...blockLayout, offset: 8 }),
  activationSpan: 1,
  spanBytes: 18,
  read(view, at, span) {
    span.halves[0] = view.getUint16(at, true);
    readNibbles(view, at + 2, span.quants, 0);
  },
};

export const q4_1: Packing = {
  layout: () => ({ ...blockLayout, hasMin: true }),
  activationSpan: 1,
  spanBytes: 20,
  read(view, at, span) {
    span.halves[0] = view.getUint16(at, true);
    span.halves[1] = view.getUint16(at + 2, true);
    readNibbles(view, at + 4, span.quants, 0);
  },
};

export const q5_0: Packing = {
  layout: () => ({ ...blockLayout, bits: 5, offset: 16 }),
  activationSpan: 1,
  spanBytes: 22,
  read(view, at, span) {
    span.halves[0] = view.getUint16(at, true);
    readFiveBits(view, at + 6, view.getUint32(at + 2, true), span.quants);
  },
};

export const q5_1: Packing = {
  layout: () => ({ ...blockLayout, bits: 5, hasMin: true }),
  activationSpan: 1,
  spanBytes: 24,
  read(view, at, span) {
    span.halves[0] = view.getUint16(at, true);
    span.halves[1] = view.getUint16(at + 2, true);
    readFiveBits(view, at + 8, view.getUint32(at + 4, true), span.quants);
  },
};

export const q8_0: Packing = {
  layout: (dot4) => anySigned({ ...blockLayout, bits: 8 }, dot4),
  activationSpan: 1,
  spanBytes: 34,
  read(view, at, span, dot4) {
    span.halves[0] = view.getUint16(at, true);
    const flip = raised(dot4) * 0x01010101;
    for (let v = 0; v < 8; v++) span.quants[v] = view.getUint32(at + 2 + 4 * v, true) ^ flip;
  },
};

export const iq4_nl: Packing = {
  layout: (dot4) => anySigned({ ...blockLayout, lookup: true }, dot4),
  codebook: (dot4) => Int8Array.from(nonlinearValues, (value) => value + raised(dot4)),
  activationSpan: 1,
  spanBytes: 18,
  read(view, at, span) {
    span.halves[0] = view.getUint16(at, true);
    readNibbles(view, at + 2, span.quants, 0);
  },
};

/** Twice the values of E2M1, as in dtypes/mxfp4.ts; the scale is halved to match. */
const e2m1 = raisedCodebook([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]);

/** 2^(e - 128) as a bfloat16, exactly: the two smallest are subnormal. */
function bf16OfPower(e: number): number {
  return e < 2 ? 0x20 << e : (e - 1) << 7;
}

export const mxfp4: Packing = {
  layout: () => ({ ...blockLayout, scales: "bfloats", offset: e2m1.offset, lookup: true }),
  codebook: () => e2m1.codebook,
  activationSpan: 1,
  spanBytes: 17,
  read(view, at, span) {
    span.halves[0] = bf16OfPower(view.getUint8(at));
    readNibbles(view, at + 1, span.quants, 0);
  },
};
