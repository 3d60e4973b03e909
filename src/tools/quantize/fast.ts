// The quickest way to quantize that has the same bits as the types' own quantizers: those, with their searches vectorized.

import { detectWasmFeatures } from "../../kernels/features.ts";
import { plainQuantize, type Quantize } from "./chunk.ts";
import { vectorSearch } from "./search.ts";

export function fastQuantizer(): Quantize {
  if (!detectWasmFeatures().simd) return plainQuantize;
  const search = vectorSearch();
  return (target, values, bytes, blocks, importance) =>
    target.quantize!(values, 0, bytes, 0, blocks, importance, search);
}
