// The table of WGSL unpacks: types that are read by hand-written code, because what is derived from the description of their
// blocks (derive.ts) reads every value's bits by themselves and is slower. All other types are derived.

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
