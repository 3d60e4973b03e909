// The fastest quantizers with the same bits as the types' own: a kernel for types that only round, and for the others
// the types' own quantizers with vectorized searches.

import type { DType } from "../../dtypes/dtype.ts";
import { detectWasmFeatures } from "../../kernels/features.ts";
import { plainQuantize, type Quantize } from "./chunk.ts";
import { type Rounder, roundingQuantizer } from "./round.ts";
import { vectorSearch } from "./search.ts";

export function fastQuantizer(): Quantize {
  if (!detectWasmFeatures().simd) return plainQuantize;
  const search = vectorSearch();
  const rounders = new Map<DType, Rounder | undefined>();
  return (target, values, bytes, blocks, importance) => {
    if (!rounders.has(target)) rounders.set(target, roundingQuantizer(target));
    const rounder = rounders.get(target);
    if (rounder && !(importance && rounder.searches)) rounder.round(values, bytes, blocks);
    else target.quantize!(values, 0, bytes, 0, blocks, importance, search);
  };
}
