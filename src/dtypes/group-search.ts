// Searches over many groups at once: what a quantizer is handed to find its scales with. The plain one calls the searches
// of scale-search.ts and nonlinear-codebook.ts group by group; another may be faster, but must find the same bits.

import { fitNonlinear } from "./nonlinear-codebook.ts";
import type { GroupFits } from "./scale-search.ts";
import { type AffineLadder, fitAffine, fitSymmetric, fitSymmetricGreedy } from "./scale-search.ts";

/** `groups` groups of `count` values each, one after the other, from x[at]; weights start at 0. */
export interface GroupSearch {
  affine(
    x: Float32Array,
    at: number,
    count: number,
    groups: number,
    weights: Float32Array, // [groups, count]
    ladder: AffineLadder,
    fits: GroupFits,
  ): void;
  symmetric(
    x: Float32Array,
    at: number,
    count: number,
    groups: number,
    half: number,
    weights: Float32Array | undefined, // [groups, count]
    fits: GroupFits,
  ): void;
  /** Scales only. */
  greedy(
    x: Float32Array,
    at: number,
    count: number,
    groups: number,
    half: number,
    fits: GroupFits,
  ): void;
  /** Groups of 32; scales only. */
  nonlinear(
    x: Float32Array,
    at: number,
    groups: number,
    weights: Float32Array, // [groups, 32]
    fits: GroupFits,
  ): void;
}

/** Values that a quantizer searches at a time. */
export const searchedElems = 8192;

const greedyQuants = new Int8Array(16);

export const plainSearch: GroupSearch = {
  affine(x, at, count, groups, weights, ladder, fits) {
    for (let g = 0; g < groups; g++) {
      fitAffine(x, at + g * count, count, weights, g * count, ladder, fits, g);
    }
  },
  symmetric(x, at, count, groups, half, weights, fits) {
    for (let g = 0; g < groups; g++) {
      fitSymmetric(x, at + g * count, count, half, weights, g * count, fits, g);
    }
  },
  greedy(x, at, count, groups, half, fits) {
    for (let g = 0; g < groups; g++) {
      fits.scales[g] = fitSymmetricGreedy(x, at + g * count, count, half, greedyQuants, 0);
    }
  },
  nonlinear(x, at, groups, weights, fits) {
    for (let g = 0; g < groups; g++) {
      fits.scales[g] = fitNonlinear(x, at + 32 * g, weights, 32 * g);
    }
  },
};
