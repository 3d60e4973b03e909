// Counters of the KV cache and its copies since the model was opened: for EngineStatus.cache, /metrics and "lantern models --cache".

import type { CacheStatus, ComputedAgain } from "../../api/api.ts";

/** Added to by the tiers and the engine. */
export interface CacheCounts {
  tokens: { kv: number; ram: number; disk: number; computed: number };
  computedAgain: Partial<Record<ComputedAgain["reason"], number>>;
  restoredBytes: { ram: number; disk: number };
  writtenBytes: number;
  /** Sequences of the KV cache, units in memory, segments on disk. */
  evicted: { kv: number; ram: number; disk: number };
  /** Records and segments that were not used because they were damaged. */
  damaged: number;
}

export function newCounts(): CacheCounts {
  return {
    tokens: { kv: 0, ram: 0, disk: 0, computed: 0 },
    computedAgain: {},
    restoredBytes: { ram: 0, disk: 0 },
    writtenBytes: 0,
    evicted: { kv: 0, ram: 0, disk: 0 },
    damaged: 0,
  };
}

/** The current contents of the cache. */
export interface CacheHeld {
  readonly ram: CacheStatus["ram"];
  readonly disk: CacheStatus["disk"];
  readonly checkpoints?: NonNullable<CacheStatus["checkpoints"]>;
  readonly dear?: NonNullable<CacheStatus["dear"]>;
}

export function cacheStatus(
  counts: CacheCounts,
  bytesPerToken: number,
  held: CacheHeld | undefined,
): CacheStatus {
  const none = { bytes: 0, budgetBytes: 0 };
  const { tokens, computedAgain, restoredBytes, evicted, writtenBytes, damaged } = counts;
  return {
    ...(held ?? { ram: none, disk: none }),
    bytesPerToken,
    tokens: { ...tokens },
    computedAgain: { ...computedAgain },
    restoredBytes: { ...restoredBytes },
    writtenBytes,
    evicted: { ...evicted },
    damaged,
  };
}
