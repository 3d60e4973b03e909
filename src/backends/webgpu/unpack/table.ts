// The table of hand-written WGSL unpacks: each export of blocks.ts, super-blocks.ts and codebooks.ts is one type. All other
// types are derived from the description of their blocks (derive.ts), which is slower.

import type { DType } from "../../../dtypes/dtype.ts";
import * as blocks from "./blocks.ts";
import * as codebooks from "./codebooks.ts";
import { deriveUnpack } from "./derive.ts";
import * as superBlocks from "./super-blocks.ts";
import type { Unpack } from "./unpack.ts";

const unpacks: Readonly<Record<string, Unpack>> = { ...blocks, ...superBlocks, ...codebooks };

export function unpackOf(dtype: DType): Unpack {
  return unpacks[dtype.name] ?? deriveUnpack(dtype.block);
}
