// Code shared by the types with blocks of 32 values (q4_0 to q5_1, and the sub-blocks of iq4): the packing of 4-bit
// quants and of fifth bits, and the weights that an importance matrix gives a block.

import { sumOfSquares, weighByImportance } from "./float32-math.ts";

/** Quant i of the first 16 goes into the low nibble of byte i, quant 16 + i into the high nibble. */
export function packNibbles(
  quants: Uint8Array | Int8Array,
  quantsAt: number,
  dst: Uint8Array,
  at: number,
): void {
  for (let i = 0; i < 16; i++) {
    dst[at + i] = (quants[quantsAt + i]! & 15) | ((quants[quantsAt + 16 + i]! & 15) << 4);
  }
}

/** Bit 4 of quant i becomes bit i of a little-endian 32-bit word. */
export function packFifthBits(quants: Uint8Array | Int8Array, dst: Uint8Array, at: number): void {
  let word = 0;
  for (let i = 0; i < 32; i++) word |= ((quants[i]! >> 4) & 1) << i;
  for (let byte = 0; byte < 4; byte++) dst[at + byte] = (word >>> (8 * byte)) & 255;
}

/**
 * Fills `weights` [count, 32] for `count` blocks of a call, from its block `first` on. The call holds whole rows, each as
 * long as `importance`. A row's mean square is added to the square of each of its values.
 */
export function weighBlocks(
  weights: Float32Array,
  importance: Float32Array,
  src: Float32Array,
  srcOffset: number,
  first: number,
  count: number,
): void {
  let meanSquare = 0;
  for (let block = 0; block < count; block++) {
    const position = 32 * (first + block);
    const inRow = position % importance.length;
    if (block === 0 || inRow === 0) {
      const sum = sumOfSquares(src, srcOffset + position - inRow, importance.length);
      meanSquare = Math.fround(sum / importance.length);
    }
    const at = srcOffset + position;
    weighByImportance(weights, 32 * block, importance, inRow, src, at, 32, meanSquare);
  }
}
