// The table of kernels that pack quantized weights: each export of the pack-words-of-* files is one type. A type without one is
// packed by pack.ts.

import type { Kernel } from "../../ir/kernel.ts";
import { lazyKernel } from "../../ir/lazy-kernel.ts";
import { packKernel, type SpanWords } from "./pack-kernel.ts";
import * as of32 from "./pack-words-of-32.ts";
import * as of256 from "./pack-words-of-256.ts";
import type { LayoutTarget } from "./packing.ts";
import { packingOf } from "./packings.ts";

/** The names of the exports are those of the types. */
const spanWords: Readonly<Record<string, SpanWords>> = { ...of32, ...of256 };

/** The kernel that packs 16 rows of this type; undefined: there is none. */
export function packKernelOf(dtype: string, target: LayoutTarget): Kernel | undefined {
  const packing = packingOf(dtype);
  const span = spanWords[dtype];
  if (!packing || !span) return undefined;
  return lazyKernel(`pack_${dtype}`, target.width, () => packKernel(dtype, span, packing, target));
}
