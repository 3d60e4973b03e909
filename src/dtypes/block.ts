// The layout of a block as data: which bits are quants, scales and mins, and how they make a value. It computes nothing: a
// type's `dequantize` is the truth, and test/dtypes/blocks.test.ts checks this description against it, bit for bit. Backends
// derive their unpacking from it for types without hand-written code (src/backends/webgpu/unpack/derive.ts).
//
//   value i = scale * smallScale[i / per] * q[i] + min * smallMin[i / per]
//   q[i] = quant[i] + offset, or an entry of a codebook, with a sign and a shift where the type has them

/**
 * The bit offset of an index, innermost stride first: each [count, bits] adds (index mod count) * bits, then divides the
 * index by count.
 */
export type Strides = readonly (readonly [count: number, bits: number])[];

/** Some bits of a number, for index 0: `bits` bits at bit `at` of the block are the number's bits from `to` (default 0) on. */
export interface Piece {
  readonly bits: number;
  readonly at: number;
  /** Positions of the bits of the other indices. Default: all indices share these bits. */
  readonly strides?: Strides;
  readonly to?: number;
  /** This piece is only for indices in [first, end); strides count from `first`. */
  readonly only?: readonly [first: number, end: number];
  /** The bits are a byte of five base-3 digits, and this is the digit to take: digit n is (byte * 3^n mod 256) * 3 / 256. */
  readonly digit?: Strides;
}

/** An integer for every `per` values of a block, put together from pieces. */
export interface Numbers {
  readonly per: number;
  readonly pieces: readonly Piece[];
  /** The integers have 8 bits, in two's complement. */
  readonly isSigned?: boolean;
}

/** A float of the block: a half float, a float32, or 2^(byte - 128). */
export interface BlockFloat {
  readonly format: "f16" | "f32" | "e8m0_half";
  /** From the lowest bits up; one piece for most types. */
  readonly pieces: readonly Piece[];
}

/** Scales or mins of sub-blocks: number * times + plus, in units of the block's scale or min. */
export interface PartNumbers extends Numbers {
  readonly times?: number;
  readonly plus?: number;
}

/** A codebook: points of `size` small integers each, one after the other. Quant n stands for point n. */
export interface BlockCodebook {
  readonly size: 1 | 4 | 8;
  readonly points: () => ArrayLike<number>;
}

/** Quantized values: blocks of them share a scale. */
export interface QuantBlock {
  readonly kind: "quants";
  readonly scale: BlockFloat;
  readonly scales?: PartNumbers;
  /** Added to every value, times the entry of `mins` where there are any. */
  readonly min?: BlockFloat & { readonly isNegative?: boolean };
  readonly mins?: PartNumbers;
  readonly quants: Numbers;
  /** Added to every quant. */
  readonly offset?: number;
  readonly codebook?: BlockCodebook;
  /** One number for eight values: bit n is set where value n is negative. isEven: bit 7 makes the count of set bits even. */
  readonly signs?: Numbers & { readonly isEven?: boolean };
  /** `by` is added to values whose number is 0, and subtracted from those whose number is 1. */
  readonly shift?: Numbers & { readonly by: number };
}

/** Values that are floats. */
export interface FloatBlock {
  readonly kind: "floats";
  readonly format: "f32" | "f16" | "bf16";
}

export type Block = QuantBlock | FloatBlock;

/** The half float at byte `at`. */
export function halfAt(at: number): BlockFloat {
  return { format: "f16", pieces: [{ bits: 16, at: 8 * at }] };
}

/** Values 0 to 15 in the low nibbles of 16 bytes from byte `at` on, 16 to 31 in the high ones. */
export function nibblesAt(at: number): Numbers {
  return { per: 1, pieces: [nibblePiece(at)] };
}

/** The same with a fifth bit, which for value i is bit i of the word at byte `fifths`. */
export function fiveBitsAt(at: number, fifths: number): Numbers {
  const fifth = { bits: 1, at: 8 * fifths, strides: [[32, 1]], to: 4 } as const;
  return { per: 1, pieces: [nibblePiece(at), fifth] };
}

function nibblePiece(at: number): Piece {
  return { bits: 4, at: 8 * at, strides: nibbleStrides };
}

const nibbleStrides: Strides = [
  [16, 8],
  [2, 4],
];

/** Two bits for each of 256 values: each half of 128 has 32 bytes, whose byte i holds value i of four groups of 32. */
export function twoBitsAt(at: number, to = 0): Piece {
  const strides: Strides = [
    [32, 8],
    [4, 2],
    [2, 256],
  ];
  return { bits: 2, at: 8 * at, strides, to };
}

/** One bit for each of 256 values: byte at + i holds, at bit s, that of value i of sub-block s of 32. */
export function oneBitAt(at: number, to: number): Piece {
  const strides: Strides = [
    [32, 8],
    [8, 1],
  ];
  return { bits: 1, at: 8 * at, strides, to };
}

/** Numbers of `bits` bits without a gap, one for every `per` values, from bit `at` on. */
export function dense(per: number, bits: number, at: number, count: number): Numbers {
  return { per, pieces: [{ bits, at, strides: [[count, bits]] }] };
}

/** As `dense`, with gaps. */
export function strided(
  per: number,
  bits: number,
  at: number,
  ...strides: readonly (readonly [count: number, bits: number])[]
): Numbers {
  return { per, pieces: [{ bits, at, strides }] };
}
