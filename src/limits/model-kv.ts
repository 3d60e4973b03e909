// Bytes of the KV cache that a token of a model takes, from the model's header alone.

import type { KvDType } from "../dtypes/kv-types.ts";
import { kvTokenBytes } from "../graph/cost.ts";
import type { ModelHeader } from "../models/arch.ts";
import { buildModel } from "../models/build.ts";

/** In all layers, keys and values. */
export function modelKvBytes(header: ModelHeader, kvType: KvDType): number {
  return kvTokenBytes(buildModel(header).graph, kvType);
}
