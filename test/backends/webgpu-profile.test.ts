// Profiles on a GPU: the records of a few batches of a tiny model, alone and with layers on the processor. Only that
// times exist and add up is checked.

import { expect, test } from "vitest";
import { BatchTimes } from "../../src/backends/webgpu/batch-times.ts";
import type { GpuDevice } from "../../src/backends/webgpu/device.ts";
import { Batch } from "../../src/graph/batch.ts";
import { open, type PhaseProfile, type ProfileReport } from "../../src/index.ts";
import { describeGpu } from "../support/gpu.ts";
import { tinyFile } from "../support/tiny-file.ts";

async function profiled(gpuLayers: number | "all"): Promise<ProfileReport> {
  const file = await tinyFile();
  try {
    await using model = await open(file.path, { gpuLayers, profile: true, threads: 1 });
    await model.generate("the cat", { maxTokens: 6, temperature: 0 }).result;
    return await model.profile({ trace: true });
  } finally {
    file.remove();
  }
}

function checkSums({ ms, computeMs, waitingMs, betweenMs, batchMs, ops, layers }: PhaseProfile) {
  const sum = (rows: { ms: number }[]): number => rows.reduce((all, row) => all + row.ms, 0);
  expect(computeMs).toBeGreaterThan(0);
  expect(sum(ops)).toBeCloseTo(computeMs, 6);
  expect(sum(layers)).toBeCloseTo(computeMs, 6);
  expect(computeMs + waitingMs).toBeCloseTo(batchMs, 6);
  expect(computeMs + waitingMs + betweenMs).toBeCloseTo(ms, 6);
}

describeGpu("a profile on the GPU", () => {
  test("has the ops and layers of both phases, and they add up", async () => {
    const report = await profiled("all");
    expect(report.phases.map(({ phase }) => phase)).toEqual(["prompt", "generation"]);
    expect(report.notes!.join()).toContain("by timestamp queries");
    for (const phase of report.phases) {
      checkSums(phase);
      expect(phase.worker).toBe("GPU");
      expect(phase.layers.map(({ name }) => name)).toContain("blk.1");
      // The GPU is not busy for longer than the batches take.
      expect(phase.waitingMs).toBeGreaterThanOrEqual(0);
      expect(
        phase.ops.some(({ name, opsPerSecond }) => /matmul/.test(name) && opsPerSecond > 0),
      ).toBe(true);
    }
    const generation = report.phases[1]!;
    expect(generation.batches).toBe(5);
    for (const { calls } of generation.layers) expect(calls % 5).toBe(0);
  });

  test("writes a trace with a track of its own, in order", async () => {
    const { traceEvents } = (await profiled("all")).trace!;
    const track = traceEvents.find(({ args }) => args?.name === "GPU")!.tid;
    const spans = traceEvents.filter(({ ph, tid }) => ph === "X" && tid === track);
    expect(spans.length).toBeGreaterThan(20);
    spans.slice(1).forEach((span, i) => {
      expect(span.ts!).toBeGreaterThanOrEqual(spans[i]!.ts!);
    });
  });

  test("of a model in two places has the parts of both", async () => {
    const report = await profiled(2);
    for (const phase of report.phases) {
      checkSums(phase);
      expect(phase.worker).toBe("cpu+webgpu");
      expect(phase.layers.map(({ name }) => name)).toEqual(
        expect.arrayContaining(["blk.0", "blk.1"]),
      );
    }
  });
});

test("a GPU without timestamp queries: whole batches, and a sentence", async () => {
  const facts = { name: "Some GPU", timestampQueries: false };
  const gpu = { facts } as unknown as GpuDevice; // nothing else of it is asked
  const times = new BatchTimes(gpu, {
    parts: [],
    ends: [0],
    steps: [[]],
    pipelines: 0,
    sameBitsTokens: 1,
    best: [],
    bestOne: [],
    looksAhead: false,
    keys: [],
  });
  const batch = new Batch({ maxTokens: 4, maxOutputs: 1 });
  expect(times.begin(batch, "generation", 0)).toBe(false);
  await times.end(0);
  const { parts, phases, notes } = times.profile();
  expect(parts).toEqual([]);
  expect(phases.generation.sizes).toHaveLength(1);
  expect(notes).toEqual([
    'the GPU "Some GPU" has no timestamp queries: what a batch consists of is not known',
  ]);
});
