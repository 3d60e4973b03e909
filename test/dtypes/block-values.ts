// What the description of a block (src/dtypes/block.ts) means, in plain TypeScript: bits by their addresses, one value after
// the other, in float32. Slow, and written without looking at any type's dequantize.

import { f16ToF32 } from "../../src/base/half.ts";
import type {
  BlockFloat,
  Numbers,
  PartNumbers,
  Piece,
  QuantBlock,
  Strides,
} from "../../src/dtypes/block.ts";
import type { DType } from "../../src/dtypes/dtype.ts";

const f = Math.fround;

/** The sum of an index's digits times their strides. */
function strided(strides: Strides, index: number): number {
  let rest = index;
  let sum = 0;
  for (const [count, bits] of strides) {
    sum += (rest % count) * bits;
    rest = Math.floor(rest / count);
  }
  return sum;
}

/** Up to 32 bits from a bit on, the lowest first. */
function bitsAt(bytes: Uint8Array, at: number, bits: number): number {
  let value = 0;
  for (let i = 0; i < bits; i++) {
    value += ((bytes[(at + i) >> 3]! >> ((at + i) & 7)) & 1) * 2 ** i;
  }
  return value;
}

function pieceOf(bytes: Uint8Array, piece: Piece, index: number): number {
  const { bits, at, strides = [], to = 0, only, digit } = piece;
  const [first, end] = only ?? [0, Number.POSITIVE_INFINITY];
  if (index < first || index >= end) return 0;
  const value = bitsAt(bytes, at + strided(strides, index - first), bits);
  if (!digit) return value * 2 ** to;
  const n = strided(digit, index - first);
  return (((value * 3 ** n) % 256) * 3) >> 8;
}

/** Of value i. */
function numberOf(bytes: Uint8Array, { per, pieces, isSigned }: Numbers, i: number): number {
  const index = Math.floor(i / per);
  const value = pieces.reduce((sum, piece) => sum + pieceOf(bytes, piece, index), 0);
  return isSigned && value > 127 ? value - 256 : value;
}

function partOf(bytes: Uint8Array, part: PartNumbers | undefined, i: number): number {
  if (!part) return 1;
  const { times = 1, plus = 0 } = part;
  return numberOf(bytes, part, i) * times + plus;
}

function floatOf(bytes: Uint8Array, { format, pieces }: BlockFloat): number {
  const number = pieces.reduce((sum, piece) => sum + pieceOf(bytes, piece, 0), 0);
  if (format === "f16") return f16ToF32(number);
  if (format === "e8m0_half") return f(2 ** (number - 128));
  return new Float32Array(Uint32Array.of(number).buffer)[0]!;
}

/** In units of the scale. */
function quantOf(bytes: Uint8Array, block: QuantBlock, i: number): number {
  const { quants, offset = 0, codebook, signs, shift } = block;
  const number = numberOf(bytes, quants, i);
  const value = codebook
    ? codebook.points()[number * codebook.size + (i % codebook.size)]!
    : number + offset;
  const signed = signs && isNegative(bytes, signs, i) ? -value : value;
  if (!shift) return signed;
  return signed + (numberOf(bytes, shift, i) ? -shift.by : shift.by);
}

function isNegative(
  bytes: Uint8Array,
  signs: NonNullable<QuantBlock["signs"]>,
  i: number,
): boolean {
  const bits = numberOf(bytes, signs, i);
  if (!signs.isEven || i % 8 < 7) return ((bits >> (i % 8)) & 1) === 1;
  return bits.toString(2).replaceAll("0", "").length % 2 === 1;
}

/** The values of one block, by its type's description. */
export function blockValues({ block, blockElems }: DType, bytes: Uint8Array): Float32Array {
  if (block.kind === "floats") {
    const bits = bitsAt(bytes, 0, block.format === "f32" ? 32 : 16);
    if (block.format === "f16") return Float32Array.of(f16ToF32(bits));
    const word = block.format === "f32" ? bits : bits * 65536;
    return new Float32Array(Uint32Array.of(word).buffer);
  }
  const { min } = block;
  return Float32Array.from({ length: blockElems }, (_, i) => {
    const scale = f(floatOf(bytes, block.scale) * partOf(bytes, block.scales, i));
    const value = f(scale * quantOf(bytes, block, i));
    if (!min) return value;
    const added = f(floatOf(bytes, min) * partOf(bytes, block.mins, i));
    return f(min.isNegative ? value - added : value + added);
  });
}

/** Every bit of a block that its description reads: [bits]. */
export function bitsRead({ block, blockElems, blockBytes }: DType): Uint8Array {
  const read = new Uint8Array(8 * blockBytes);
  if (block.kind === "floats") return read.fill(1);
  const { scale, scales, min, mins, quants, signs, shift } = block;
  const mark = (pieces: readonly Piece[], per: number) => {
    for (const { bits, at, strides = [], only } of pieces) {
      const [first, end] = only ?? [0, blockElems / per];
      for (let index = 0; index < end - first; index++) {
        const from = at + strided(strides, index);
        read.fill(1, from, from + bits);
      }
    }
  };
  for (const each of [scale, min]) if (each) mark(each.pieces, blockElems);
  for (const each of [scales, mins, quants, signs, shift]) if (each) mark(each.pieces, each.per);
  return read;
}
