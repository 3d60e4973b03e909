// Layers in one dispatch, measured for real on a GPU: candidates with times, those that are out with their reasons, and the model computes
// afterwards as before. A GPU that the processor plays runs as many workgroups at a time as it has threads, at most 32.

import { expect, test } from "vitest";
import { canWait, tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { AbortedError } from "../../src/base/errors.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { tuneModelLayers } from "../../src/tune/compose-layers.ts";
import { tunedLayers } from "../../src/tune/layer-choose.ts";
import { layerCapacity, layerLimits, runLayerTune } from "../../src/tune/layer-tune.ts";
import { uploadSample } from "../../src/tune/matmul-graph.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { llamaGraph } from "../support/llama-graph.ts";
import { tinyFile } from "../support/tiny-file.ts";

const graph = llamaGraph("f16", 1);
const contexts = [2, 40] as const;

/** With few bindings, so that few kernels are merged: a processor takes minutes to compile more. */
async function opened() {
  const gpu = await openGpu({ limits: { storageBuffers: 8 } });
  const tuning = tuningFor(gpu.facts);
  const backend = new WebGpuBackend(gpu, { tuning });
  await backend.prepare(makePlan(graph, layerLimits), layerCapacity(graph, contexts));
  for (const weight of graph.weights) await uploadSample(backend, weight);
  return { graph, backend, gpu, tuning, contexts, rounds: 1 };
}

describeGpu("layers in one dispatch, tuned", () => {
  test("candidates are measured, and those that cannot be are out", {
    timeout: 900_000,
  }, async () => {
    const plan = await opened();
    expect(canWait(plan.gpu.facts)).toBe(true);
    const shares: number[] = [];
    const report = async (share: number) => void shares.push(share);
    // Lanes that no kernel has; one workgroup, which waits for nobody; more than run at the same time, and still more.
    const candidates = [{ groups: 1, lanes: 96 }, { groups: 1 }, { groups: 100 }, { groups: 101 }];
    const tuned = await runLayerTune({ ...plan, candidates, report });
    expect(tuned.dispatches.map(({ groups, result }) => [groups, typeof result])).toEqual([
      [0, "object"],
      [1, "string"],
      [1, "object"],
      [100, "string"],
      [101, "string"],
    ]);
    expect(tuned.dispatches.map(({ result }) => result)).toEqual([
      [expect.any(Number), expect.any(Number)],
      "not-merged",
      [expect.any(Number), expect.any(Number)],
      "gave-up",
      "untried",
    ]);
    for (const { result } of tuned.dispatches) {
      if (typeof result !== "string") expect(Math.min(...result)).toBeGreaterThan(0);
    }
    expect(["apart", "1"]).toContain(tuned.use);
    expect(shares).toEqual(shares.toSorted((a, b) => a - b));
    expect(shares.at(-1)).toBeLessThanOrEqual(1);

    // The backend has not given up on layers: what was found is used.
    const used = { ...tuned, use: "1" };
    const { facts } = plan.gpu;
    const layerDispatch = tunedLayers({ layers: [used], date: "2026-11-18" }, facts);
    await plan.backend.retune({ ...plan.tuning, layerDispatch });
    const notes = plan.backend.explain().join("\n");
    expect(notes).toContain("a layer of a token is one dispatch of 1 workgroups: tuned 2026-11-18");
    expect(notes).toContain("layer of 2");
    expect(notes).not.toContain("could not wait");
    plan.backend.dispose();
  });

  test("a candidate whose results have other bits is out", { timeout: 900_000 }, async () => {
    const plan = await opened();
    const { backend } = plan;
    // What the second token after the reference gives is wrong, as of a broken kernel.
    let reads = 0;
    const read = backend.read.bind(backend);
    backend.read = async (output, row, target) => {
      await read(output, row, target);
      if (reads++ >= 5) target[3] = target[3]! + 1e-6;
    };
    const report = async () => {};
    const tuned = await runLayerTune({ ...plan, candidates: [{ groups: 1 }], report });
    expect(tuned.dispatches[1]!.result).toBe("other-bits");
    expect(tuned.use).toBe("apart");
    backend.dispose();
  });

  test("an abort ends it between two measurements", { timeout: 900_000 }, async () => {
    const plan = await opened();
    let reports = 0;
    const report = async () => {
      if (++reports === 2) throw new AbortedError("tuning");
    };
    const tuning = runLayerTune({ ...plan, candidates: [{ groups: 1 }], report });
    await expect(tuning).rejects.toThrow(AbortedError);
    expect(reports).toBe(2);
    plan.backend.dispose();
  });

  test("of a model file, on the GPU with its own weights", { timeout: 900_000 }, async () => {
    const gpu = () => openGpu({ limits: { storageBuffers: 8 } });
    const { facts } = await gpu();
    const shares: number[] = [];
    const plan = (model: string) => ({
      ...{ model, tuning: tuningFor(facts), rounds: 1 },
      report: async (share: number) => void shares.push(share),
    });
    const file = await tinyFile({ weightType: "f16", layers: 1 });
    const tuned = await tuneModelLayers(plan(file.path), nodePlatform, facts, gpu);
    if (typeof tuned === "string") expect.fail(tuned);
    // Its matrices are too small for the kernels that can be merged.
    expect(tuned).toMatchObject({ use: "apart", contexts: [16, 511] });
    const results = tuned.dispatches.map(({ result }) => result);
    expect(results).toEqual([expect.any(Array), "not-merged", "not-merged", "not-merged"]);
    expect(shares[0]).toBe(0);
    expect(shares.length).toBeGreaterThan(10);
    const recurrent = await tinyFile({ architecture: "mamba" });
    expect(await tuneModelLayers(plan(recurrent.path), nodePlatform, facts, gpu)).toBe(
      "the model has recurrent state",
    );
    const narrow = { ...facts, isSoftware: false, subgroups: { min: 16, max: 32 } };
    expect(await tuneModelLayers(plan(file.path), nodePlatform, narrow, gpu)).toContain("32 lanes");
    for (const { remove } of [file, recurrent]) remove();
  });
});
