// The table of packings: each export of the packings-of-* files is one type. A type without a packing is computed by the
// generic matmul (dequantize a row, multiply floats). Packings are written by hand because every weight passes through them
// while a model is loaded: reading it bit by bit as src/dtypes/block.ts describes takes longer.
// test/kernels/packings.test.ts checks them against that description.

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
