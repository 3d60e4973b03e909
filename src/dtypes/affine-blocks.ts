// The quantizer of q4_1 and q5_1: blocks of 32 values as quants from 0 on, times a half-float scale, plus a half-float
// min. The types differ in the bits of a quant and in how quants are packed after the min. Dequantizing is in their files.

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
const offset = new Float32Array(1); // the min that is stored is -offset

/** The differences between q4_1 and q5_1. */
export interface AffineBlock {
  readonly blockBytes: number;
  /** The scales to try where there is an importance matrix. */
  readonly ladder: AffineLadder;
  /** Whether quants above the largest are clamped where there is no importance matrix: ggml does for q4_1, not for q5_1. */
  readonly isClamped: boolean;
  /** Writes a block's quants after its scale and min. */
  pack(quants: Uint8Array, dst: Uint8Array, at: number): void;
}

/** The ladder of a type whose quants are 0 to maxQuant. */
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
      offset[0] = fits.mins[index]!;
    }
    storeF16(dst, to, scale[0]!);
    storeF16(dst, to + 2, -offset[0]!);
    type.pack(quants, dst, to + 4);
  }
}

/** No search: the quants span the range of the values, value ~ scale * quant - offset. Quants wrap to a byte, as in C. */
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
  offset[0] = -min;
}
