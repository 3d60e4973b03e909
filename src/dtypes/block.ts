// How a block of a tensor type lies in memory, as data: which bits are quants, scales and mins, and how they make a value. A
// type's `dequantize` is the readable truth; test/dtypes/blocks.test.ts holds this description against it, bit for bit. Backends
// derive from it what they have not written by hand for speed (src/backends/webgpu/unpack/derive.ts).
//
//   value i = scale * smallScale[i / per] * q[i] + min * smallMin[i / per]
//   q[i] = quant[i] + offset, or an entry of a codebook, with a sign and a shift where the type has them

/** [count, bits] from the innermost out: digit by digit of an index, how many bits further its number lies. */
export type Strides = readonly (readonly [count: number, bits: number])[];

/** Some bits of a number: `bits` from bit `at` of the block on, for index 0; they are the number's bits from `to` (0) on. */
export interface Piece {
  readonly bits: number;
  readonly at: number;
  /** Where the other indices' bits are; default: at the same place. */
  readonly strides?: Strides;
  readonly to?: number;
  /** Only for indices from `first` to before `end`, which count from `first` on. */
  readonly only?: readonly [first: number, end: number];
  /** The bits are five base-3 digits of a byte, of which this is which: digit n is (byte * 3^n mod 256) * 3 / 256. */
  readonly digit?: Strides;
}

/** A whole number for every `per` values of a block, in as many pieces as it has. */
export interface Numbers {
  readonly per: number;
  readonly pieces: readonly Piece[];
  /** Of 8 bits, two's complement. */
  readonly isSigned?: boolean;
}

/** A float of the block: a half, a float, or 2^(byte - 128), from the bits of a number. */
export interface BlockFloat {
  readonly format: "f16" | "f32" | "e8m0_half";
  /** From the lowest bits up; one piece for most types. */
  readonly pieces: readonly Piece[];
}

/** Scales or mins of parts of a block: number * times + plus, in units of the block's. */
export interface PartNumbers extends Numbers {
  readonly times?: number;
  readonly plus?: number;
}

/** Points of `size` small whole numbers behind each other: quant n stands for point n. */
export interface BlockCodebook {
  readonly size: 1 | 4 | 8;
  readonly points: () => ArrayLike<number>;
}

/** Quantized values: blocks of them share a scale. */
export interface QuantBlock {
  readonly kind: "quants";
  readonly scale: BlockFloat;
  readonly scales?: PartNumbers;
  /** What is added to every value, times its `mins` where there are any. */
  readonly min?: BlockFloat & { readonly isNegative?: boolean };
  readonly mins?: PartNumbers;
  readonly quants: Numbers;
  /** Added to every quant. */
  readonly offset?: number;
  readonly codebook?: BlockCodebook;
  /** Of eight values: bit n is set where value n is negative; without the eighth bit, their number is even. */
  readonly signs?: Numbers & { readonly isEven?: boolean };
  /** `by` is added to values whose number is 0, and subtracted where it is 1. */
  readonly shift?: Numbers & { readonly by: number };
}

/** Values that are floats, each by itself. */
export interface FloatBlock {
  readonly kind: "floats";
  readonly format: "f32" | "f16" | "bf16";
}

export type Block = QuantBlock | FloatBlock;

/** Of the block's first bytes, or from byte `at` on. */
export function halfAt(at: number): BlockFloat {
  return { format: "f16", pieces: [{ bits: 16, at: 8 * at }] };
}

/** Values 0 to 15 in the low nibbles of 16 bytes from byte `at` on, 16 to 31 in the high ones. */
export function nibblesAt(at: number): Numbers {
  return { per: 1, pieces: [nibblePiece(at)] };
}

/** The same with a fifth bit: value i's is bit i from byte `fifths` on. */
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

/** Two bits of 256 values: each half has 32 bytes, whose byte i holds value i of four sub-blocks of 32. */
export function twoBitsAt(at: number, to = 0): Piece {
  const strides: Strides = [
    [32, 8],
    [4, 2],
    [2, 256],
  ];
  return { bits: 2, at: 8 * at, strides, to };
}

/** One bit of 256 values: byte i from byte `at` on holds bit s of value i of sub-block s of 32. */
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
