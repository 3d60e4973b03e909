// The sentences of --explain about the cache.
// Held against: sentences written here.

import { expect, test } from "vitest";
import { cachePlan, promptCache } from "../../apps/cli/cache-explained.ts";
import type { CacheStatus, Timings } from "../../src/index.ts";

const cache: CacheStatus = {
  ram: { bytes: 5e6, budgetBytes: 1e9 },
  disk: { bytes: 2e7, budgetBytes: 8e9 },
  bytesPerToken: 22_528,
  checkpoints: { tokens: 128, bytes: 1.5e6, why: "a batch has 128 tokens" },
  tokens: { kv: 0, ram: 0, disk: 0, computed: 0 },
  computedAgain: {},
  restoredBytes: { ram: 0, disk: 0 },
  writtenBytes: 0,
  evicted: { kv: 0, ram: 0, disk: 0 },
  damaged: 0,
};

test("what copies and checkpoints cost", () => {
  expect(cachePlan(cache)).toBe(
    `copies of state: up to 1.0 GB in memory (--cache-ram), up to 8.0 GB on disk, of all models (--cache-disk)
  a token takes 22.5 kB in the KV cache and in each copy
  checkpoints of windows and recurrent state: every 128 tokens, 1.5 MB each; not closer: a batch has 128 tokens
`,
  );
  const measured = { ...cache.checkpoints!, computeMs: 2600, copyMs: 3 };
  expect(cachePlan({ ...cache, bytesPerToken: 0, checkpoints: measured })).toContain(
    "1.5 MB each: copying takes 3.0 ms, computing 128 tokens again 2600.0 ms; not closer",
  );
});

test("where a prompt came from, and what that saved", () => {
  const timings = {
    promptTokens: 1000,
    cachedTokens: 900,
    promptMs: 2000,
    restored: { ramTokens: 100, diskTokens: 700, ms: 50 },
    computedAgain: { reason: "checkpoint", tokens: 60, at: 900, text: "60 tokens were computed" },
  } as Timings;
  const text = promptCache(timings, cache);
  expect(text).toContain(
    "of 1000 prompt tokens, 100 were in the KV cache, 100 came from memory and 700 from disk (50.0 ms), which would have taken 18000.0 ms to compute; 100 were computed",
  );
  expect(text).toContain("computed again: 60 tokens were computed");
  expect(text).toContain("memory holds 5.0 MB of 1.0 GB, disk 20.0 MB of 8.0 GB");
  expect(text).not.toContain("no copies are made");
  expect(promptCache(timings, { ...cache, dear: { computeMs: 95, copyMs: 700 } })).toContain(
    "no copies are made: computing 1,000 tokens takes 95.0 ms, copying their state 700.0 ms",
  );
});
