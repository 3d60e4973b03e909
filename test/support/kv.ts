// The types of a KV cache from their names: "f16", or "q8_0/q4_0" where keys and values differ.

import { type KvDType, type KvType, kvDTypeOf } from "../../src/dtypes/kv-types.ts";

export function kvOf(names: string): KvDType {
  const [k, v = k] = names.split("/") as [KvType, KvType?];
  return kvDTypeOf({ k, v });
}
