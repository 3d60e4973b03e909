// What a disk allows, by hand: a model of 10 GB with 4 GB of memory, on a disk of 2 GB/s.

import { expect, test } from "vitest";
import { diskReport, limitsWithDisk } from "../../src/limits/disk.ts";

const memory = { weightBytes: 10e9, storedBytes: 10e9, stateBytes: 1e9 };

test("what does not fit beside the state is read for each token", () => {
  expect(diskReport(memory, 4e9, 2e9)).toEqual({
    ramBytes: 4e9,
    memoryBytes: 3e9,
    diskBytes: 7e9,
    bytesPerSecond: 2e9,
    tokensPerSecond: 2 / 7,
  });
  expect(diskReport(memory, 11e9, 2e9)).toBeUndefined();
  // No more than there is, and of experts only those of a token.
  expect(diskReport(memory, 0.5e9, 2e9)).toMatchObject({ memoryBytes: 0, diskBytes: 10e9 });
  const experts = { ...memory, weightBytes: 1e9 };
  expect(diskReport(experts, 4e9, 2e9)).toMatchObject({ memoryBytes: 3e9, diskBytes: 0.7e9 });
});

test("the slower of memory and disk is the limit", () => {
  const times = {
    promptTokens: 20,
    cachedTokens: 10,
    promptMs: 7000,
    generatedTokens: 4,
    generatedMs: 20_000,
  };
  const disk = { diskBytes: 7e9, bytesPerSecond: 2e9 };
  const { prompt, generation } = limitsWithDisk(times, undefined, disk);
  expect(generation).toEqual({
    resource: "disk",
    tokensPerSecond: 2 / 7,
    fraction: 0.7,
    achievedPerSecond: 1.4e9,
    possiblePerSecond: 2e9,
  });
  expect(prompt).toMatchObject({ resource: "disk", fraction: 0.5 });
  const slow = { ...generation!, resource: "bandwidth" as const, tokensPerSecond: 0.1 };
  const both = limitsWithDisk(times, { prompt: undefined, generation: slow }, disk);
  expect(both.generation).toBe(slow);
  const fast = { ...slow, tokensPerSecond: 100 };
  expect(limitsWithDisk(times, { prompt: fast, generation: fast }, disk)).toEqual({
    prompt,
    generation,
  });
});
