// Converts the file's words to quants and scales for the types with blocks of 32, as IR for the kernels that pack them
// (pack-kernel.ts). packings-of-32.ts has the same in TypeScript; tests compare these with it.

import type { Reg } from "../../ir/kernel.ts";
import type { Lanes, SpanWords } from "./pack-kernel.ts";
import { NIBBLES, raised } from "./packing.ts";

/** The offsets of `count` words from `first` on. */
function wordsFrom(first: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => first + 4 * i);
}

/** Low nibbles of 16 bytes are the first 16 columns, high nibbles the last. */
function nibbles(lanes: Lanes, at: number, v: number): Reg<"i32v"> {
  return lanes.bits(lanes.word(at + 4 * (v & 3)), v < 4 ? 0 : 4, NIBBLES);
}

/** Bits 4v..4v+3 of a word as bit 4 of four bytes. */
function fifthBits(lanes: Lanes, at: number, v: number): Reg<"i32v"> {
  const { k } = lanes;
  const four = lanes.bits(lanes.word(at), 4 * v, 15);
  const spread = k.op("i32v.mul", [four, k.op("i32v.const", [], 0x00204081)]);
  return lanes.shl(lanes.and(spread, 0x01010101), 4);
}

export const q4_0: SpanWords = {
  words: [0, ...wordsFrom(2, 4)],
  halfAt: 0,
  quant: (lanes, _, v) => nibbles(lanes, 2, v),
};

export const q4_1: SpanWords = {
  words: wordsFrom(0, 5),
  halfAt: 0,
  quant: (lanes, _, v) => nibbles(lanes, 4, v),
};

export const q5_0: SpanWords = {
  words: [0, ...wordsFrom(2, 5)],
  halfAt: 0,
  quant: (lanes, _, v) => lanes.or(nibbles(lanes, 6, v), fifthBits(lanes, 2, v)),
};

export const q5_1: SpanWords = {
  words: wordsFrom(0, 6),
  halfAt: 0,
  quant: (lanes, _, v) => lanes.or(nibbles(lanes, 8, v), fifthBits(lanes, 4, v)),
};

export const q8_0: SpanWords = {
  words: [0, ...wordsFrom(2, 8)],
  halfAt: 0,
  quant: (lanes, _, v, dot4) => {
    const { k } = lanes;
    const word = lanes.word(2 + 4 * v);
    if (raised(dot4) === 0) return word;
    const flipped = k.op("i8v.xor", [
      k.op("i32v.as_i8v", [word]),
      k.op("i8v.splat", [], -raised(dot4)),
    ]);
    return k.op("i8v.as_i32v", [flipped]);
  },
};

export const iq4_nl: SpanWords = q4_0;

export const mxfp4: SpanWords = {
  words: [0, ...wordsFrom(1, 4)],
  // 2^(e - 128), as the product of two powers of 2 that are normal for every e from 0 to 255.
  scale: (lanes) => {
    const { k } = lanes;
    const e = lanes.and(lanes.word(0), 255);
    const half = lanes.shr(e, 1);
    const power = (exponent: Reg<"i32v">, more: number) => {
      const sum = k.op("i32v.add", [exponent, k.op("i32v.const", [], more)]);
      return k.op("i32v.as_f32v", [lanes.shl(sum, 23)]);
    };
    return k.op("f32v.mul", [power(half, 32), power(k.op("i32v.sub", [e, half]), 94)]);
  },
  quant: (lanes, _, v) => nibbles(lanes, 1, v),
};
