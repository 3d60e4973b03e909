// The two phases of a generation against their limits: the sums of many batches in one go, and the arithmetic of a limit.

import { describe, expect, test } from "vitest";
import type { Device, MachineMeasurement } from "../../src/api/rates.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { graphCost } from "../../src/graph/cost.ts";
import { splitGraph } from "../../src/graph/split.ts";
import { deviceAt } from "../../src/limits/device.ts";
import {
  generationWork,
  phaseWork,
  promptWork,
  speedLimit,
  speedLimits,
} from "../../src/limits/phase.ts";
import { limitOf } from "../../src/limits/roofline.ts";
import { buildModel } from "../../src/models/build.ts";
import { tinyModel } from "../support/tiny-engine.ts";

const kvType = dtypeByName("f16")!;
const { graph } = buildModel(tinyModel());
const model = { graph, kvType };

/** What a batch of so many tokens writes to the cache, which limits leave out. */
function writtenBytes(tokens: number): number {
  return graphCost(graph, { tokens, outputs: 0, context: 0, kv: kvType }).kvBytes;
}

describe("work", () => {
  test("of generating is the sum over its batches", () => {
    const written = writtenBytes(1);
    const sum = { bytes: 0, floatOps: 0, halfOps: 0, int8Ops: 0 };
    for (let context = 8; context <= 17; context++) {
      // After 7 tokens, the first batch attends to 8: those and itself.
      const cost = graphCost(graph, { tokens: 1, outputs: 1, context, kv: kvType });
      sum.bytes += cost.weightBytes + cost.kvBytes - written;
      sum.floatOps += cost.floatOps;
      sum.halfOps += cost.halfOps;
      sum.int8Ops += cost.int8Ops;
    }
    expect(generationWork(model, 7, 10)).toEqual(sum);
  });

  test("of reading a prompt computes every token, reads weights once and the cache once", () => {
    const [cached, tokens] = [5, 6];
    const work = promptWork(model, cached, tokens);
    const oneByOne = generationWork(model, cached, tokens);
    const logits = graphCost(graph, { tokens: 0, outputs: 1, context: 0, kv: kvType });
    // The same operations, less the logits of all tokens but the last.
    expect(work.floatOps).toBe(oneByOne.floatOps - 5 * logits.floatOps);
    const once = graphCost(graph, { tokens, outputs: 1, context: cached + tokens, kv: kvType });
    expect(work.bytes).toBe(once.weightBytes + once.kvBytes - writtenBytes(tokens));
    expect(work.bytes).toBeLessThan(oneByOne.bytes / 4);
  });

  test("of a layer with a window ends at the window", () => {
    const window = 12;
    const nodes = graph.nodes.map((node) =>
      node.op === "attention" && node.state === 0 ? { ...node, window } : node,
    );
    const windowed = { graph: { ...graph, nodes }, kvType };
    const batchOf = (context: number) =>
      graphCost(windowed.graph, { tokens: 1, outputs: 1, context, kv: kvType });
    const sum = { bytes: 0, floatOps: 0, halfOps: 0, int8Ops: 0 };
    for (let context = 8; context <= 30; context++) {
      const cost = batchOf(context);
      sum.bytes += cost.weightBytes + cost.kvBytes - writtenBytes(1);
      sum.floatOps += cost.floatOps;
      sum.halfOps += cost.halfOps;
      sum.int8Ops += cost.int8Ops;
    }
    expect(generationWork(windowed, 7, 23)).toEqual(sum);
    expect(generationWork(windowed, 7, 4)).toEqual(generationWork(model, 7, 4)); // up to 11 tokens
    // Half of the layers read and compute no more for a longer context.
    const [near, far] = [batchOf(100), batchOf(101)];
    const [nearAll, farAll] = [100, 101].map((context) =>
      graphCost(graph, { tokens: 1, outputs: 1, context, kv: kvType }),
    );
    expect(far.kvBytes - near.kvBytes).toBe((farAll!.kvBytes - nearAll!.kvBytes) / 2);
    // A prompt of 20 after 40 tokens: the first of them reaches 11 back, and all are read once.
    const [all, less] = [promptWork(model, 40, 20), promptWork(windowed, 40, 20)];
    const perToken = (farAll!.kvBytes - nearAll!.kvBytes) / 2;
    expect(all.bytes - less.bytes).toBe((60 - (11 + 20)) * perToken);
    const pairs = 20 * 40 + (20 * 21) / 2;
    const ofPair = (all.halfOps - less.halfOps) / (pairs - 20 * window);
    expect(ofPair).toBe((farAll!.halfOps - nearAll!.halfOps) / 2);
  });

  test("of nothing is nothing, and has no limit", () => {
    const nothing = { bytes: 0, floatOps: 0, halfOps: 0, int8Ops: 0 };
    expect(promptWork(model, 7, 0)).toEqual(nothing);
    expect(generationWork(model, 7, 0)).toEqual(nothing);
    expect(speedLimit(nothing, deviceAt(machine, 1), { tokens: 1, seconds: 1 })).toBeUndefined();
  });
});

const points = (one: number, two: number) => [
  { threads: 1, perSecond: one },
  { threads: 2, perSecond: two },
];
const machine: MachineMeasurement = {
  cpu: "Test",
  cores: 2,
  memoryBytes: undefined,
  lowering: "by hand",
  readBytes: points(10e9, 16e9),
  cachedReads: [
    { setBytes: 1e6, readBytes: points(50e9, 100e9) },
    { setBytes: 1e8, readBytes: points(20e9, 30e9) },
  ],
  f32Ops: points(40e9, 80e9),
  int8Ops: points(200e9, 400e9),
  measuredAt: "2026-11-15T05:10:37.842Z",
};

describe("a limit", () => {
  test("that memory sets", () => {
    const work = { bytes: 8e9, floatOps: 1e9, halfOps: 0, int8Ops: 0 };
    expect(speedLimit(work, deviceAt(machine, 2), { tokens: 10, seconds: 1 })).toEqual({
      resource: "bandwidth",
      tokensPerSecond: 20,
      fraction: 0.5,
      achievedPerSecond: 8e9,
      possiblePerSecond: 16e9,
    });
  });

  test("that arithmetic sets: floats and bytes take turns", () => {
    const work = { bytes: 1e6, floatOps: 4e9, halfOps: 0, int8Ops: 40e9 };
    const limit = speedLimit(work, deviceAt(machine, 1), { tokens: 60, seconds: 0.6 })!;
    expect(limit.resource).toBe("arithmetic");
    expect(limit.fraction).toBeCloseTo(0.5);
    expect(limit.tokensPerSecond).toBeCloseTo(200);
    expect(limit.achievedPerSecond).toBeCloseTo(44e9 / 0.6);
    expect(limit.possiblePerSecond).toBeCloseTo(44e9 / 0.3);
  });

  test("of a generation: cached tokens were not computed", () => {
    const work = { bytes: 16e9, floatOps: 0, halfOps: 0, int8Ops: 0 };
    const times = {
      promptTokens: 12,
      cachedTokens: 2,
      promptMs: 4000,
      generatedTokens: 8,
      generatedMs: 0,
      work: { prompt: work, generation: work },
    };
    const { prompt, generation } = speedLimits(times, deviceAt(machine, 2));
    expect(prompt).toMatchObject({ tokensPerSecond: 10, fraction: 0.25 });
    expect(generation).toBeUndefined();
  });
});

describe("this machine as a device", () => {
  test("between thread counts in proportion, beyond the last as the last", () => {
    const wide = { ...machine, f32Ops: [...machine.f32Ops, { threads: 6, perSecond: 160e9 }] };
    expect(deviceAt(wide, 4).opsPerSecond.f32).toBe(120e9);
    expect(deviceAt(wide, 99).opsPerSecond.f32).toBe(160e9);
    expect(deviceAt(machine, 1).source).toBe("measured 2026-11-15, 1 thread");
  });

  test("bytes are multiplied in AMX tiles where there are any", () => {
    const tiles = { ...machine, int8TileOps: points(1600e9, 3200e9) };
    expect([1, 2].map((threads) => deviceAt(machine, threads).opsPerSecond.int8)).toEqual([
      200e9, 400e9,
    ]);
    expect([1, 2].map((threads) => deviceAt(tiles, threads).opsPerSecond)).toEqual([
      { f32: 40e9, f16: 800e9, int8: 1600e9 },
      { f32: 80e9, f16: 1600e9, int8: 3200e9 },
    ]);
    expect(deviceAt(tiles, 1).f16From).toBe("derived: half of int8"); // it is not measured
    expect(deviceAt(tiles, 1).source).toBe("measured 2026-11-15, 1 thread, int8 in AMX tiles");
    // What was half of the limit is a sixteenth: 40e9 products of bytes, and nothing else to compute.
    const work = { bytes: 1, floatOps: 0, halfOps: 0, int8Ops: 40e9 };
    const times = { tokens: 60, seconds: 0.4 };
    expect(speedLimit(work, deviceAt(machine, 1), times)!.fraction).toBeCloseTo(1 / 2);
    expect(speedLimit(work, deviceAt(tiles, 1), times)!.fraction).toBeCloseTo(1 / 16);
  });

  test("small sets are read from caches: the next smaller one that was measured counts", () => {
    const bandwidth = (setBytes?: number) => deviceAt(machine, 1, setBytes).bytesPerSecond;
    expect(bandwidth()).toBe(10e9);
    expect(bandwidth(1e10)).toBe(10e9);
    expect(bandwidth(3e8)).toBe(20e9);
    expect(bandwidth(9e7)).toBe(50e9);
    expect(bandwidth(1000)).toBe(50e9);
    const { cachedReads: _, ...uncached } = machine;
    expect(deviceAt(uncached, 1, 1000).bytesPerSecond).toBe(10e9);
  });
});

describe("a model in two places", () => {
  const { front, back } = splitGraph(graph, 1);
  const parts = [front, back].map((part) => ({ graph: part, kvType }));
  const counts = { cached: 3, read: 6, batches: 4 };
  const times = {
    promptTokens: 9,
    cachedTokens: 3,
    promptMs: 20,
    generatedTokens: 5,
    generatedMs: 10,
    work: phaseWork(model, parts, counts),
  };
  const fast: Device = {
    id: "fast",
    name: "fast",
    memoryBytes: undefined,
    bytesPerSecond: 1e12,
    opsPerSecond: { f32: 1e13 },
    source: "by hand",
  };
  const slow: Device = { ...fast, bytesPerSecond: 1e9, opsPerSecond: { f32: 1e10 } };

  test("the work of its parts is that of the whole", () => {
    for (const phase of ["prompt", "generation"] as const) {
      const [one, two] = times.work.parts!.map((part) => part[phase]);
      expect(one!.bytes).toBeGreaterThan(0);
      expect(one!.bytes + two!.bytes).toBe(times.work[phase].bytes);
      expect(one!.floatOps + two!.floatOps).toBeCloseTo(times.work[phase].floatOps, 5);
    }
  });

  test("the least times of both add up", () => {
    const seconds = (devices: Device[]): number =>
      5 / speedLimits(times, ...devices).generation!.tokensPerSecond;
    const [first, second] = times.work.parts!.map(({ generation }) => limitOf(generation, slow));
    expect(seconds([slow, slow])).toBeCloseTo(first!.seconds + second!.seconds, 12);
    const onFast = limitOf(times.work.parts![1]!.generation, fast).seconds;
    expect(seconds([slow, fast])).toBeCloseTo(first!.seconds + onFast, 12);
  });

  test("of a model that is in one place nothing is said with two devices", () => {
    const { parts: _, ...whole } = times.work;
    const limits = speedLimits({ ...times, work: whole }, slow, fast);
    expect(limits).toEqual({ prompt: undefined, generation: undefined });
  });
});
