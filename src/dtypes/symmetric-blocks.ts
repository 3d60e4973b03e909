// The quantizer of q4_0 and q5_0: blocks of 32 values as quants around a middle, times one half-float scale. The types
// differ in the bits of a quant and in how quants are packed after the scale. Dequantizing is in their files.

import { type BlockSearch, plainSearch, searchedElems } from "./block-search.ts";
import { weighBlocks } from "./blocks-of-32.ts";
import { largestMagnitude, reciprocalOrZero, storeF16 } from "./float32-math.ts";
import { newFits, symmetricQuantsOf } from "./scale-search.ts";

const quants = new Int8Array(32);
/** Blocks that are searched at a time. */
const searchedBlocks = searchedElems / 32;
const weights = new Float32Array(searchedElems);
const fits = newFits(searchedBlocks);

/** The differences between q4_0 and q5_0. */
export interface SymmetricBlock {
  readonly blockBytes: number;
  /** The quant that stands for zero: 8 or 16. */
  readonly middle: number;
  /** Writes a block's quants after its scale. */
  pack(quants: Int8Array, dst: Uint8Array, at: number): void;
}

/** DType.quantize of such a type. */
export function quantizeSymmetricBlocks(
  { blockBytes, middle, pack }: SymmetricBlock,
  src: Float32Array,
  srcOffset: number,
  dst: Uint8Array,
  dstOffset: number,
  blocks: number,
  importance: Float32Array | undefined,
  search: BlockSearch = plainSearch,
): void {
  for (let block = 0; block < blocks; block++) {
    const from = srcOffset + 32 * block;
    const to = dstOffset + blockBytes * block;
    let scale: number;
    if (importance === undefined) {
      scale = plainQuants(src, from, middle);
    } else {
      const index = block % searchedBlocks;
      if (index === 0) {
        const count = Math.min(searchedBlocks, blocks - block);
        weighBlocks(weights, importance, src, srcOffset, block, count);
        search.symmetric(src, from, 32, count, middle, weights, fits);
      }
      symmetricQuantsOf(fits, index, src, from, 32, middle, quants, 0);
      scale = fits.scales[index]!;
    }
    storeF16(dst, to, scale);
    pack(quants, dst, to + 2);
  }
}

/** The scale that maps the largest value to quant 0: there are more quants below the middle than above it. */
function plainQuants(src: Float32Array, from: number, middle: number): number {
  const scale = Math.fround(largestMagnitude(src, from, 32) / -middle);
  const inverse = reciprocalOrZero(scale);
  for (let i = 0; i < 32; i++) {
    const shifted = Math.fround(Math.fround(src[from + i]! * inverse) + (middle + 0.5));
    quants[i] = Math.min(2 * middle - 1, (shifted << 24) >> 24);
  }
  return scale;
}
