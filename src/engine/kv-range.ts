// The error of keys and values that the KV cache cannot hold. Engine (Backend.kvOverflow) and non-finite.ts find them; connection.ts opens
// the model again with another cache.

import type { KvOverflow } from "../backends/backend.ts";
import { KvRangeError } from "../base/errors.ts";

/** The error's message: its advice is for the case that F32 has no room, or that the model is not opened again. */
export function kvRangeError({ value, dtype, largest }: KvOverflow): KvRangeError {
  return new KvRangeError(
    `the model's keys or values leave what a KV cache of ${dtype} can hold: "${value}" reaches ${largest.toPrecision(4)}. Open the model with \`kvType: "f32"\``,
  );
}
