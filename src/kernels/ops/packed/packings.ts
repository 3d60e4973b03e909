// The table of packings: one line a type. A type without one is computed by the generic path (unpack a row, multiply
// floats). They are written by hand, since every weight passes through them while a model is loaded, and the description of
// a block (src/dtypes/block.ts) read bit by bit would take longer; test/kernels/packings.test.ts holds them against it.

import type { Packing } from "./packing.ts";
import * as of32 from "./packings-of-32.ts";
import * as of256 from "./packings-of-256.ts";
import * as ofCodebooks from "./packings-of-codebooks.ts";

/** The names of the exports are those of the types. */
const packings: Readonly<Record<string, Packing>> = { ...of32, ...of256, ...ofCodebooks };

export function packingOf(dtypeName: string): Packing | undefined {
  return packings[dtypeName];
}

export function packedTypes(): string[] {
  return Object.keys(packings);
}
