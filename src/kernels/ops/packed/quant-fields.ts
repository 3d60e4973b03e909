// The bit layout of a block's quants in its vectors: which bits of which vector make up each quant, as data. unpack.ts and
// the kernels (matmul/emit-quants.ts) read this table; pack-quants.ts is the same, unrolled.
//
// A block has 8 quant vectors (columns 4v..4v+3 of a group's rows; packed.ts), each byte of which is a quant of 2 to 8 bits.
// Eight quants of b bits fill b vectors exactly. As many quants as possible are in one piece, in the lowest bits, where one
// mask extracts them; the others are put together from the remaining upper bits:
//   6 bits   three quants in the low bits of three vectors, the fourth in their top two bits:  11 ops for 4 quants
//   5 bits   five quants in the low bits of five vectors, three in their top three bits:       23 ops for 8 quants
// Nibbles and a separate plane of high bits would take 17 and 35. Where a scale is for half a block, its quants use as few
// vectors of the other half as possible.

export type QuantBits = 2 | 3 | 4 | 5 | 6 | 8;

/** `width` bits of every byte of vector `vector`, from bit `from` on, which are the quant's bits from `to` on. */
export interface QuantField {
  readonly vector: number;
  readonly from: number;
  readonly width: number;
  readonly to: number;
}

function field(vector: number, from: number, width: number, to = 0): QuantField {
  return { vector, from, width, to };
}

/** For each size of quants: the fields of quant vectors 0 to 7. */
export const quantFields: Readonly<Record<QuantBits, readonly (readonly QuantField[])[]>> = {
  2: [0, 1].flatMap((vector) => [0, 2, 4, 6].map((from) => [field(vector, from, 2)])),
  3: [
    [field(0, 0, 3)],
    [field(0, 3, 3)],
    [field(1, 0, 3)],
    [field(0, 6, 2), field(1, 6, 1, 2)],
    [field(2, 0, 3)],
    [field(2, 3, 3)],
    [field(1, 3, 3)],
    [field(2, 6, 2), field(1, 7, 1, 2)],
  ],
  4: [0, 4].flatMap((from) => [0, 1, 2, 3].map((vector) => [field(vector, from, 4)])),
  5: [
    ...[0, 1, 2, 3, 4].map((vector) => [field(vector, 0, 5)]),
    [field(0, 5, 3), field(1, 6, 2, 3)],
    [field(2, 5, 3), field(3, 6, 2, 3)],
    [field(4, 5, 3), field(1, 5, 1, 3), field(3, 5, 1, 4)],
  ],
  6: [0, 3].flatMap((first) => [
    [field(first, 0, 6)],
    [field(first + 1, 0, 6)],
    [field(first + 2, 0, 6)],
    [field(first, 6, 2), field(first + 1, 6, 2, 2), field(first + 2, 6, 2, 4)],
  ]),
  8: [0, 1, 2, 3, 4, 5, 6, 7].map((vector) => [field(vector, 0, 8)]),
};

/** Quant vectors `first` to `end` in the order of the vectors they are in, so that each is loaded as rarely as possible. */
export function quantOrder(bits: QuantBits, first: number, end: number): number[] {
  const fields = quantFields[bits];
  const quants = Array.from({ length: end - first }, (_, i) => first + i);
  return quants.sort((a, b) => fields[a]![0]!.vector - fields[b]![0]!.vector);
}
