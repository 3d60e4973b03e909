// Sums of memory, for backends that are made of two others (split/, switch/).

import type { MemoryUse } from "./backend.ts";

export function totalBytes({ weightBytes, kvBytes, workBytes }: MemoryUse): number {
  return weightBytes + kvBytes + workBytes;
}

/** The memory of two backends together. */
export function sumOfUse(a: MemoryUse, b: MemoryUse): MemoryUse {
  return {
    weightBytes: a.weightBytes + b.weightBytes,
    kvBytes: a.kvBytes + b.kvBytes,
    workBytes: a.workBytes + b.workBytes,
  };
}
