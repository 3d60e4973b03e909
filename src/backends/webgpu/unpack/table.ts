// The table of WGSL unpacks: one line for each tensor type that the GPU reads, by the type's name.

import type { DType } from "../../../dtypes/dtype.ts";
import * as blocks from "./blocks.ts";
import * as codebooks from "./codebooks.ts";
import * as superBlocks from "./super-blocks.ts";
import type { Unpack } from "./unpack.ts";

const unpacks: Readonly<Record<string, Unpack>> = { ...blocks, ...superBlocks, ...codebooks };

/** undefined: the GPU does not read this type. */
export function unpackOf(dtype: DType): Unpack | undefined {
  return unpacks[dtype.name];
}
