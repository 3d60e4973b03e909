// The inner step that the codebook types share: one point, scaled, into 8 or 4 consecutive outputs.
//
// Written out instead of looped: these run for every weight of every row, and the loop costs a third of the speed.
// Rows are element indices into flat tables (codebooks.ts), not point numbers.

/** dst[out..out+8) = scale * codebook[point..] * signs[signRow..] */
export function writeSigned8(
  dst: Float32Array,
  out: number,
  scale: number,
  codebook: Float32Array,
  point: number,
  signs: Float32Array,
  signRow: number,
): void {
  writeSigned4(dst, out, scale, codebook, point, signs, signRow);
  writeSigned4(dst, out + 4, scale, codebook, point + 4, signs, signRow + 4);
}

/** dst[out..out+4) = scale * codebook[point..] * signs[signRow..] */
export function writeSigned4(
  dst: Float32Array,
  out: number,
  scale: number,
  codebook: Float32Array,
  point: number,
  signs: Float32Array,
  signRow: number,
): void {
  dst[out] = scale * codebook[point]! * signs[signRow]!;
  dst[out + 1] = scale * codebook[point + 1]! * signs[signRow + 1]!;
  dst[out + 2] = scale * codebook[point + 2]! * signs[signRow + 2]!;
  dst[out + 3] = scale * codebook[point + 3]! * signs[signRow + 3]!;
}

/** dst[out..out+8) = scale * (codebook[point..] + shift) */
export function writeShifted8(
  dst: Float32Array,
  out: number,
  scale: number,
  codebook: Float32Array,
  point: number,
  shift: number,
): void {
  dst[out] = scale * (codebook[point]! + shift);
  dst[out + 1] = scale * (codebook[point + 1]! + shift);
  dst[out + 2] = scale * (codebook[point + 2]! + shift);
  dst[out + 3] = scale * (codebook[point + 3]! + shift);
  dst[out + 4] = scale * (codebook[point + 4]! + shift);
  dst[out + 5] = scale * (codebook[point + 5]! + shift);
  dst[out + 6] = scale * (codebook[point + 6]! + shift);
  dst[out + 7] = scale * (codebook[point + 7]! + shift);
}
