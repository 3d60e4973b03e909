// Tuning on a GPU: a small matmul measured for real, and with made-up times what is chosen, refused, and compared with the
// processor's.

import { describe, expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { matmulShapes, tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { analyzeTuneFile } from "../../src/tune/analyze.ts";
import { crossBackends } from "../../src/tune/cross-backends.ts";
import { fastestVariant, useGpuTuning } from "../../src/tune/gpu-choose.ts";
import { gpuTuneIdentity, gpuTuneProfiles } from "../../src/tune/gpu-profiles.ts";
import { runGpuTune } from "../../src/tune/gpu-tune.ts";
import { floats, matmulBatch, matmulGraph, uploadSample } from "../../src/tune/matmul-graph.ts";
import { parseTuneFile, printTuneFile, type TuneFile } from "../../src/tune/tune-file.ts";
import { usableFile } from "../../src/tune/use.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { gpuFacts as facts } from "./sample.ts";

/** Microseconds by profile: the default first. */
function tuned(one: number[], eight: number): TuneFile {
  const profiles = gpuTuneProfiles();
  const times = (all: (number | undefined)[]) =>
    profiles.map((_, i) => (all[i] === undefined ? undefined : { init: 0, compute: all[i] }));
  const lines = [
    { m: 1, times: times(one) },
    { m: 8, times: times([eight]) },
  ];
  const group = { dtype: "q4_0", n: 512, k: 256, threads: 1, lines };
  return { ...gpuTuneIdentity(facts), date: "2026-11-15T05:10:00.000Z", profiles, groups: [group] };
}

describe("with times", () => {
  test("the fastest shape is used where it is clearly faster than the default", () => {
    const [first, second] = [...matmulShapes.keys()];
    expect(fastestVariant(tuned([10, 9.9, 8], 50), 512, 256, "q4_0")).toBe(second);
    expect(fastestVariant(tuned([10, 9.9], 50), 512, 256, "q4_0")).toBe("default");
    expect(fastestVariant(tuned([10, 5], 50), 512, 256, "q8_0")).toBe("default"); // not measured
    const { tuning, notes } = useGpuTuning(tuned([10, 5], 50), facts);
    expect(tuning!.shapeFor(512, 256, "q4_0")).toEqual(matmulShapes.get(first!));
    expect(tuning!.shapeFor(512, 256, "q8_0")).toEqual(tuningFor(facts).shapeFor(512, 256, "q8_0"));
    expect(notes.join("\n")).toContain(`q4_0 512 x 256: ${first} (1 token: default 10.0 us`);
  });

  test("what is faster by less than the noise is not chosen", () => {
    const [first] = [...matmulShapes.keys()];
    const { groups, ...head } = tuned([10, 8], 50);
    const noisy = (noise: number) => ({ ...head, groups: groups.map((g) => ({ ...g, noise })) });
    expect(fastestVariant(noisy(0.1), 512, 256, "q4_0")).toBe(first);
    expect(fastestVariant(noisy(0.3), 512, 256, "q4_0")).toBe("default");
  });

  test("a file of another GPU or driver is not used, and says so", () => {
    const text = printTuneFile(tuned([10, 5], 50));
    expect(parseTuneFile(text, "test")).toEqual(tuned([10, 5], 50));
    expect(usableFile(text, "test", gpuTuneIdentity(facts))).toEqual(tuned([10, 5], 50));
    const other = usableFile(text, "test", gpuTuneIdentity({ ...facts, driver: "driver 2" }));
    expect(other).toContain("Some GPU, vendor, driver 1, here Some GPU, vendor, driver 2");
    const { tuning, notes } = useGpuTuning(other, facts);
    expect(tuning).toBeUndefined();
    expect(notes[0]).toContain("GPU kernels: defaults;");
  });

  test("the gain is over the backend's own choice", () => {
    expect(analyzeTuneFile(tuned([10, 5], 50)).gain.most).toBe(2);
  });

  test("beside the processor's: who is faster from how many tokens on", () => {
    const cpuProfile = { backend: "cpu", level: 3, variant: "8x4.compact", idle: "spin" } as const;
    const line = (m: number, us: number) => ({ m, times: [{ init: 1, compute: us - 1 }] });
    const group = { dtype: "q4_0", n: 512, k: 256 };
    const cpu: TuneFile = {
      ...tuned([], 0),
      profiles: [cpuProfile],
      groups: [
        { ...group, threads: 1, lines: [line(1, 1), line(8, 1)] },
        { ...group, threads: 2, lines: [line(1, 6), line(4, 24), line(8, 48), line(64, 999)] },
        { ...group, n: 99, threads: 2, lines: [line(1, 6)] },
      ],
    };
    const [crossing, ...others] = crossBackends(cpu, tuned([10, 9], 16));
    expect(others).toEqual([]);
    expect(crossing).toMatchObject({ ...group, threads: 2 });
    // The GPU's time of 4 tokens lies between those of 1 and 8; beyond 8 it was not measured.
    expect(crossing!.points).toMatchObject([
      { m: 1, first: 6, second: 9 },
      { m: 4, first: 24, second: 10 + (3 / 7) * 6 },
      { m: 8, first: 48, second: 16 },
    ]);
    expect(crossing!.turns).toEqual([
      { m: 1, faster: "cpu" },
      { m: 4, faster: "webgpu" },
    ]);
  });
});

describeGpu("on a GPU", () => {
  const problem = { dtype: "q4_0", n: 64, k: 64 };

  test("measures the default for all tokens, the shapes for few, and stages and transfers apart", {
    timeout: 600_000,
  }, async () => {
    const plan = { problems: [problem], tokens: [1, 6], rounds: 1, streamBytes: 1 };
    const [group] = await runGpuTune(plan, openGpu, async () => {});
    expect(group).toMatchObject({ ...problem, threads: 1 });
    const [one, six] = group!.lines.map(({ times }) => times.filter((time) => time !== undefined));
    expect(one!.length).toBeGreaterThan(1);
    expect(six).toHaveLength(1);
    for (const { compute } of [...one!, ...six!]) expect(compute).toBeGreaterThan(0);
    // Kernels for few tokens round activations as they read them; those for many read rounded ones.
    expect(one!.map(({ init }) => init)).toEqual(one!.map(() => 0));
    expect(group!.transfers!.map(({ m, prepared }) => [m, prepared !== undefined])).toEqual([
      [1, false],
      [6, true],
    ]);
    for (const { back } of group!.transfers!) expect(back).toBeGreaterThan(0);
  });

  test("measures experts, without the router before them", { timeout: 600_000 }, async () => {
    const experts = { ...problem, experts: { count: 4, used: 2 } };
    const plan = { problems: [experts], tokens: [3], rounds: 1, streamBytes: 1 };
    const [group] = await runGpuTune(plan, openGpu, async () => {});
    expect(group).toMatchObject(experts);
    expect(group!.lines[0]!.times.filter((time) => time !== undefined)).toHaveLength(1);
    expect(group!.lines[0]!.times[0]!.compute).toBeGreaterThan(0);
  });

  test("every shape gives what the default gives", async () => {
    const gpu = await openGpu();
    const usual = tuningFor(gpu.facts);
    const backend = new WebGpuBackend(gpu);
    const limits = { maxTokens: 2, maxOutputs: 2 };
    const graph = matmulGraph(dtypeByName("q4_0")!, problem.n, problem.k);
    await backend.prepare(makePlan(graph, limits), evenCapacity(1, floats));
    for (const weight of graph.weights) await uploadSample(backend, weight);
    const run = async (): Promise<Float32Array> => {
      await backend.run(matmulBatch(2, limits));
      const row = new Float32Array(problem.n);
      await backend.read("logits", 1, row);
      return row;
    };
    const want = await run();
    const largest = Math.max(...want.map(Math.abs));
    expect(largest).toBeGreaterThan(0);
    for (const [id, shape] of matmulShapes) {
      await backend.retune({ ...usual, shapeFor: () => shape });
      const got = await run();
      const off = Math.max(...got.map((value, i) => Math.abs(value - want[i]!))) / largest;
      expect(off, id).toBeLessThan(3e-6);
    }
    backend.dispose();
  });
});
