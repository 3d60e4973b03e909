// What q4_1 and q5_1 share when they are written: blocks of 32 values as quants from 0 on, times a half-float scale, plus a
// half-float min. They differ in the bits of a quant and in how quants are packed behind both.

import { type BlockSearch, plainSearch, searchedElems } from "./block-search.ts";
import { weighBlocks } from "./blocks-of-32.ts";
import { reciprocalOrZero, storeF16 } from "./float32-math.ts";
import { type AffineLadder, affineQuantsOf, newFits } from "./scale-search.ts";

const f = Math.fround;

const quants = new Uint8Array(32);
/** Blocks that are searched at a time. */
const searchedBlocks = searchedElems / 32;
const weights = new Float32Array(searchedElems);
const fits = newFits(searchedBlocks);
const scale = new Float32Array(1);
const minimum = new Float32Array(1); // as a positive offset: -minimum is what is stored

/** What q4_1 and q5_1 say of themselves. */
export interface AffineBlock {
  readonly blockBytes: number;
  /** What is tried where there are weights. */
  readonly ladder: AffineLadder;
  /** Without weights, quants above the last become the last. (What ggml does of the one type, and not of the other.) */
  readonly isClamped: boolean;
  /** Puts a block's quants behind its scale and min. */
  pack(quants: Uint8Array, dst: Uint8Array, at: number): void;
}

/** The ladder of such a type with so many quants. */
export function affineBlockLadder(maxQuant: number): AffineLadder {
  return {
    maxQuant,
    first: Math.fround(-0.9),
    delta: Math.fround(0.05),
    steps: 36,
    absolute: false,
  };
}

/** DType.quantize of such a type. */
export function quantizeAffineBlocks(
  type: AffineBlock,
  src: Float32Array,
  srcOffset: number,
  dst: Uint8Array,
  dstOffset: number,
  blocks: number,
  importance: Float32Array | undefined,
  search: BlockSearch = plainSearch,
): void {
  const { blockBytes, ladder } = type;
  for (let block = 0; block < blocks; block++) {
    const from = srcOffset + 32 * block;
    const to = dstOffset + blockBytes * block;
    if (importance === undefined) {
      spanQuants(src, from, type);
    } else {
      const index = block % searchedBlocks;
      if (index === 0) {
        const count = Math.min(searchedBlocks, blocks - block);
        weighBlocks(weights, importance, src, srcOffset, block, count);
        search.affine(src, from, 32, count, weights, ladder, fits);
      }
      affineQuantsOf(fits, index, src, from, 32, ladder.maxQuant, quants, 0);
      scale[0] = fits.scales[index]!;
      minimum[0] = fits.mins[index]!;
    }
    storeF16(dst, to, scale[0]!);
    storeF16(dst, to + 2, -minimum[0]!);
    type.pack(quants, dst, to + 4);
  }
}

/** No search: values spread over their whole range, value ~ scale * quant - min. Quants are cut to a byte. */
function spanQuants(src: Float32Array, from: number, { ladder, isClamped }: AffineBlock): void {
  const { maxQuant } = ladder;
  let min = src[from]!;
  let max = min;
  for (let i = from + 1; i < from + 32; i++) {
    if (src[i]! < min) min = src[i]!;
    if (src[i]! > max) max = src[i]!;
  }
  const step = f(f(max - min) / maxQuant);
  const inverse = reciprocalOrZero(step);
  for (let i = 0; i < 32; i++) {
    quants[i] = f(f(f(src[from + i]! - min) * inverse) + 0.5);
    if (isClamped) quants[i] = Math.min(maxQuant, (quants[i]! << 24) >> 24);
  }
  scale[0] = step;
  minimum[0] = -min;
}
