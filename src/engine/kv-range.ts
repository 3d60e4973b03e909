// The error of keys and values that the KV cache cannot hold. Who finds them: Engine (Backend.kvOverflow) and nonsense.ts. Who opens the
// model again with another cache: connection.ts.

import type { KvOverflow } from "../backends/backend.ts";
import { KvRangeError } from "../base/errors.ts";

/** What is said of it: the next step is for where F32 has no room, or nobody opens the model again. */
export function kvRangeError({ value, dtype, largest }: KvOverflow): KvRangeError {
  return new KvRangeError(
    `the model's keys or values leave what a KV cache of ${dtype} can hold: "${value}" reaches ${largest.toPrecision(4)}. Open the model with kvType f32 (--cache-type f32)`,
  );
}
