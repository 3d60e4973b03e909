// Converts the file's words to quants and scales for the types with super-blocks of 256, as IR for the kernels that pack
// them (pack-kernel.ts). packings-of-256.ts has the same in TypeScript; tests compare these with it.

import type { Reg } from "../../ir/kernel.ts";
import type { Lanes, SpanWords } from "./pack-kernel.ts";
import { NIBBLES } from "./packing.ts";

/** Every word of a span of `bytes` bytes; if they are no multiple of 4, the last word overlaps the one before. */
function wordsOf(bytes: number): number[] {
  const words = Array.from({ length: Math.floor(bytes / 4) }, (_, i) => 4 * i);
  return bytes % 4 === 0 ? words : [...words, bytes - 4];
}

/** Bits of each byte of block `block`, where words hold several blocks, the first in the lowest bits. */
function twoBits(lanes: Lanes, at: number, block: number, v: number): Reg<"i32v"> {
  return lanes.bits(lanes.word(at + 32 * (block >> 2) + 4 * v), 2 * (block & 3), 0x03030303);
}

function oneBit(lanes: Lanes, at: number, block: number, v: number): Reg<"i32v"> {
  return lanes.bits(lanes.word(at + 4 * v), block, 0x01010101);
}

/** d and -dmin, side by side at this offset. */
function scaleAndMin(lanes: Lanes, at: number): Reg<"f32v">[] {
  const both = lanes.word(at);
  const min = lanes.float(lanes.shr(both, 16));
  return [lanes.float(both), lanes.k.op("f32v.neg", [min])];
}

/** d in the last two bytes of the span. */
function lastHalf(lanes: Lanes, bytes: number): Reg<"f32v">[] {
  return [lanes.float(lanes.shr(lanes.word(bytes - 4), 16))];
}

/** A scale that is stored 32 higher, as a byte. */
function less32(lanes: Lanes, scale: Reg<"i32v">): Reg<"i32v"> {
  const { k } = lanes;
  return lanes.and(k.op("i32v.sub", [scale, k.op("i32v.const", [], 32)]), 255);
}

/** Scale (part 0) or min (part 1) of block j, of the 6-bit scales of Q4_K and Q5_K: 12 bytes at offset 4. */
function sixBits(lanes: Lanes, j: number, part: 0 | 1): Reg<"i32v"> {
  const first = lanes.byte(4 + 4 * part + (j & 3));
  if (j < 4) return lanes.and(first, 63);
  const low = lanes.bits(lanes.byte(12 + (j & 3)), 4 * part, 15);
  return lanes.or(low, lanes.shl(lanes.shr(first, 6), 4));
}

export const q2_k: SpanWords = {
  words: wordsOf(84),
  header: (lanes) => scaleAndMin(lanes, 80),
  smallScale: (lanes, i) => lanes.and(lanes.byte(i), 15),
  smallMin: (lanes, i) => lanes.shr(lanes.byte(i), 4),
  quant: (lanes, block, v) => twoBits(lanes, 16, block, v),
};

export const q3_k: SpanWords = {
  words: wordsOf(110),
  header: (lanes) => lastHalf(lanes, 110),
  smallScale: (lanes, i) => {
    const low = lanes.bits(lanes.byte(96 + (i & 7)), 4 * (i >> 3), 15);
    const high = lanes.bits(lanes.byte(104 + (i & 3)), 2 * (i >> 2), 3);
    return less32(lanes, lanes.or(low, lanes.shl(high, 4)));
  },
  quant: (lanes, block, v) => {
    const third = lanes.shl(oneBit(lanes, 0, block, v), 2);
    return lanes.or(twoBits(lanes, 32, block, v), third);
  },
};

export const q4_k: SpanWords = {
  words: wordsOf(144),
  header: (lanes) => scaleAndMin(lanes, 0),
  smallScale: (lanes, i) => sixBits(lanes, i, 0),
  smallMin: (lanes, i) => sixBits(lanes, i, 1),
  quant: (lanes, block, v) =>
    lanes.bits(lanes.word(16 + 32 * (block >> 1) + 4 * v), 4 * (block & 1), NIBBLES),
};

export const q5_k: SpanWords = {
  words: wordsOf(176),
  header: (lanes) => scaleAndMin(lanes, 0),
  smallScale: (lanes, i) => sixBits(lanes, i, 0),
  smallMin: (lanes, i) => sixBits(lanes, i, 1),
  quant: (lanes, block, v) => {
    const low = lanes.word(48 + 32 * (block >> 1) + 4 * v);
    const fifth = lanes.shl(oneBit(lanes, 16, block, v), 4);
    return lanes.or(lanes.bits(low, 4 * (block & 1), NIBBLES), fifth);
  },
};

export const q6_k: SpanWords = {
  words: wordsOf(210),
  header: (lanes) => lastHalf(lanes, 210),
  smallScale: (lanes, i) => lanes.byte(192 + i),
  // Each half of the span: 64 bytes of low bits, 32 bytes of high bits, four blocks.
  quant: (lanes, block, v) => {
    const [side, quarter] = [block >> 2, block & 3];
    const low = lanes.word(64 * side + 32 * (quarter & 1) + 4 * v);
    const high = lanes.shl(twoBits(lanes, 128, block, v), 4);
    return lanes.or(lanes.bits(low, 4 * (quarter >> 1), NIBBLES), high);
  },
};

export const iq4_xs: SpanWords = {
  words: wordsOf(136),
  header: (lanes) => [lanes.float(lanes.word(0))],
  smallScale: (lanes, block) => {
    const low = lanes.bits(lanes.byte(4 + (block >> 1)), 4 * (block & 1), 15);
    const high = lanes.bits(lanes.word(0), 16 + 2 * block, 3);
    return less32(lanes, lanes.or(low, lanes.shl(high, 4)));
  },
  quant: (lanes, block, v) =>
    lanes.bits(lanes.word(8 + 16 * block + 4 * (v & 3)), v < 4 ? 0 : 4, NIBBLES),
};

export const tq2_0: SpanWords = {
  words: wordsOf(66),
  header: (lanes) => lastHalf(lanes, 66),
  smallScale: (lanes) => lanes.k.op("i32v.const", [], 1),
  quant: (lanes, block, v) => twoBits(lanes, 0, block, v),
};
