// The search for scales that a quantizer is given, over many sub-blocks in one call. The plain one calls scale-search.ts and
// nonlinear-codebook.ts for one sub-block after the other. Another may be faster, but must return the same bits.

import { type LadderSearch, plainLadderSearch } from "./ladder-search.ts";
import { fitNonlinear } from "./nonlinear-codebook.ts";
import type { BlockFits } from "./scale-search.ts";
import { type AffineLadder, fitAffine, fitSymmetric, fitSymmetricGreedy } from "./scale-search.ts";

/** `sub-blocks` sub-blocks of `count` values each, one after the other, from x[at]; weights start at 0. */
export interface BlockSearch {
  affine(
    x: Float32Array,
    at: number,
    count: number,
    subBlocks: number,
    weights: Float32Array, // [sub-blocks, count]
    ladder: AffineLadder,
    fits: BlockFits,
  ): void;
  symmetric(
    x: Float32Array,
    at: number,
    count: number,
    subBlocks: number,
    half: number,
    weights: Float32Array | undefined, // [sub-blocks, count]
    fits: BlockFits,
  ): void;
  /** Scales only. */
  greedy(
    x: Float32Array,
    at: number,
    count: number,
    subBlocks: number,
    half: number,
    fits: BlockFits,
  ): void;
  /** Sub-blocks of 32; scales only. */
  nonlinear(
    x: Float32Array,
    at: number,
    subBlocks: number,
    weights: Float32Array, // [sub-blocks, 32]
    fits: BlockFits,
  ): void;
  readonly ladder: LadderSearch;
}

/** Values that a quantizer searches at a time. */
export const searchedElems = 8192;

const greedyQuants = new Int8Array(16);

export const plainSearch: BlockSearch = {
  affine(x, at, count, subBlocks, weights, ladder, fits) {
    for (let g = 0; g < subBlocks; g++) {
      fitAffine(x, at + g * count, count, weights, g * count, ladder, fits, g);
    }
  },
  symmetric(x, at, count, subBlocks, half, weights, fits) {
    for (let g = 0; g < subBlocks; g++) {
      fitSymmetric(x, at + g * count, count, half, weights, g * count, fits, g);
    }
  },
  greedy(x, at, count, subBlocks, half, fits) {
    for (let g = 0; g < subBlocks; g++) {
      fits.scales[g] = fitSymmetricGreedy(x, at + g * count, count, half, greedyQuants, 0);
    }
  },
  nonlinear(x, at, subBlocks, weights, fits) {
    for (let g = 0; g < subBlocks; g++) {
      fits.scales[g] = fitNonlinear(x, at + 32 * g, weights, 32 * g);
    }
  },
  ladder: plainLadderSearch,
};
