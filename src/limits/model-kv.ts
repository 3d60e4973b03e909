// Bytes of the KV cache that a token of a model takes, from the model's header alone.

import type { DType } from "../dtypes/dtype.ts";
import { kvTokenBytes } from "../graph/cost.ts";
import type { ModelHeader } from "../models/arch.ts";
import { buildModel } from "../models/build.ts";

/** In all layers, keys and values. */
export function modelKvBytes(header: ModelHeader, kvType: DType): number {
  return kvTokenBytes(buildModel(header).graph, kvType);
}
