// Which kernels of a token become one dispatch, by the bindings that a device allows. What they compute: webgpu-layers.test.ts.
// Held against: lists of kernels written here.

import { expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { layOut } from "../../src/backends/webgpu/buffers.ts";
import type { GpuFacts } from "../../src/backends/webgpu/device.ts";
import { dispatchFor } from "../../src/backends/webgpu/layer-shape.ts";
import { mergeLayers } from "../../src/backends/webgpu/layers.ts";
import { lowerPlan } from "../../src/backends/webgpu/program.ts";
import {
  type LayerDispatch,
  tuningFor,
  USUAL_POLLS,
  withLayers,
} from "../../src/backends/webgpu/tuning.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { subgroupGpu } from "../support/gpu-facts.ts";
import { llamaGraph } from "../support/llama-graph.ts";
import { testTexts } from "../support/null-gpu.ts";
import { tinyModel } from "../support/tiny-engine.ts";

const facts: GpuFacts = { ...subgroupGpu, storageBuffers: 16 };

interface Merged {
  /** A small model of this architecture; undefined: a Llama of two layers. */
  readonly architecture?: string;
  readonly mostBytes?: number;
  readonly type?: string;
  /** As of llamaGraph(). */
  readonly size?: number;
  readonly kvHeads?: number;
  readonly lanes?: number | undefined;
  readonly otherwise?: LayerDispatch;
  readonly groups?: number;
  /** Of the KV cache, which is of `cache`. */
  readonly blocks?: number;
  readonly cache?: string;
}

/** The kernels of a token, before and after. */
function merged(changes: Partial<GpuFacts> = {}, options: Merged = {}) {
  const { architecture, mostBytes, type = "q4_0", size = 1, kvHeads = 2, lanes } = options;
  const { otherwise, groups = 7, blocks = 4, cache = "f16" } = options;
  const own = { ...facts, ...changes };
  const graph = architecture
    ? buildModel(tinyModel({ architecture })).graph
    : llamaGraph(type, 2, size, kvHeads);
  const plan = makePlan(graph, { maxTokens: 8, maxOutputs: 8 });
  const layout = layOut(plan, evenCapacity(blocks, dtypeByName(cache)!), own);
  const lowered = lowerPlan(own, layout, tuningFor(own), undefined, "groups");
  const dispatch = dispatchFor(graph, {
    ...{ groups, lanes, polls: 100, otherwise },
    ...(mostBytes !== undefined && { mostBytes }),
  });
  const { parts, exchangeWords } = dispatch
    ? mergeLayers(lowered, layout, own, dispatch)
    : { parts: lowered, exchangeWords: 0 };
  const singles = (all: typeof parts) =>
    all.flatMap(({ kernels }) => kernels).filter(({ minRows }) => minRows <= 1);
  const layers = singles(parts).filter(({ name }) => name.startsWith("layer of"));
  return { before: singles(lowered), after: singles(parts), layers, exchangeWords, lowered, parts };
}

test("a layer is one dispatch", () => {
  const { before, after, layers, parts, lowered, exchangeWords } = merged();
  expect(layers.map(({ name }) => name.split(":")[0])).toEqual(["layer of 5", "layer of 5"]);
  expect(after.length).toBe(before.length - 2 * 4);
  // Kernels for more tokens are the same.
  const others = (all: typeof parts) =>
    all.flatMap(({ kernels }) => kernels).filter(({ minRows }) => minRows > 1);
  expect(others(parts)).toEqual(others(lowered));
  expect(layers.map(({ grid }) => grid(1))).toEqual([
    [7, 1, 1],
    [7, 1, 1],
  ]);
  expect(exchangeWords).toBeGreaterThan(0);
});

test("fewer bindings: more dispatches", () => {
  for (const storageBuffers of [8, 10, 12]) {
    const { layers, after, before } = merged({ storageBuffers });
    for (const { sources } of layers) expect(sources.length).toBeLessThanOrEqual(storageBuffers);
    expect(after.length).toBeLessThan(before.length);
    expect(after.length).toBeGreaterThan(merged().after.length);
  }
});

test("a layer that needs more workgroup memory than there is", () => {
  const { before, after } = merged({ workgroupStorageBytes: 2048 });
  expect(after.length).toBeGreaterThan(merged().after.length);
  expect(after.length).toBeLessThanOrEqual(before.length);
});

test("layers with more weights than it pays for stay apart", () => {
  expect(merged({}, { mostBytes: 2 ** 30 }).layers).toHaveLength(2);
  expect(merged({}, { mostBytes: 1000 }).layers).toHaveLength(0);
});

test("larger layers have another dispatch, or none", () => {
  const layers = (mostBytes: number) => {
    const otherwise = { groups: 5, polls: 100, mostBytes };
    return merged({}, { mostBytes: 1000, otherwise }).layers;
  };
  expect(layers(2 ** 30).map(({ grid }) => grid(1)[0])).toEqual([5, 5]);
  expect(layers(2000)).toHaveLength(0);
});

test("workgroups of more lanes than their kernels have", () => {
  const wide = (workgroupLanes: number, lanes: number) =>
    merged({ workgroupLanes }, { lanes }).layers;
  expect(wide(512, 512)).toHaveLength(2);
  for (const { code } of wide(1024, 512)) expect(code).toContain("@workgroup_size(512)");
  expect(wide(256, 512)).toHaveLength(0); // the device has fewer
  expect(wide(1024, 1024)).toHaveLength(0); // and norms would have other bits
  expect(wide(1024, 384)).toHaveLength(0); // heads are of 256 lanes
});

test("the default is for GPUs that were measured", () => {
  const tuning = tuningFor(facts);
  const dispatch = (name: string, groups?: number) =>
    withLayers(tuning, { ...facts, name }, groups).layerDispatch;
  expect(dispatch("nvidia-h200")).toMatchObject({
    ...{ groups: 176, mostBytes: 64 * 2 ** 20 },
    otherwise: { groups: 132, lanes: 512, mostBytes: 128 * 2 ** 20 },
  });
  expect(dispatch("nvidia-h200", 0)).toBeUndefined();
  expect(dispatch("nvidia-h100")).toBeUndefined();
  expect(dispatch("nvidia-h100", 7)).toMatchObject({ groups: 7, polls: USUAL_POLLS });
  const plain = { ...facts, name: "nvidia-h200", subgroups: { min: 16, max: 32 } };
  expect(withLayers(tuning, plain, undefined).layerDispatch).toBeUndefined();
});

test("recurrent state cannot be computed twice", () => {
  const { exchangeWords, parts, lowered } = merged({}, { architecture: "mamba" });
  expect(exchangeWords).toBe(0);
  expect(parts).toBe(lowered);
});

test("workgroups without a head prefetch keys, values and weights of the matmul after the next, if it has a second round", () => {
  /** From which workgroup on. */
  const touching = (changes: Partial<GpuFacts>, options: Merged) =>
    merged(changes, options).layers.map(({ code }) => {
      const found =
        /if \(group\.x >= (\d+)u\) \{\s+prefetched = prefetchCache_k1\(\1u, .* \+ prefetch_k3\(/;
      return found.exec(code)?.[1];
    });
  expect(touching({}, { size: 8 })).toEqual(["4", "4"]);
  expect(touching({}, { groups: 1000 })).toEqual([undefined, undefined]);
  // Two heads in a workgroup: they are apart where a context may have several parts, and this one has one.
  const wide = { size: 8, lanes: 512, groups: 3 };
  expect(touching({ workgroupLanes: 512 }, wide)).toEqual(["2", "2"]);
  expect(touching({ workgroupLanes: 512 }, { ...wide, blocks: 16 })).toEqual(["4", "4"]);
});

await testTexts(["q4_0", "q4_1", "q8_0", "mxfp4", "q4_k", "q6_k", "f16"], (type) => {
  // With a part of what a lane can load at once, and with several times as much; and over other caches.
  const layers = [1, 8].flatMap((size) =>
    [undefined, 512].flatMap((lanes) => {
      return merged({ workgroupLanes: 512 }, { type, size, lanes }).layers;
    }),
  );
  const cached = { type, size: 8, lanes: 512, kvHeads: 4, blocks: 16 };
  for (const cache of ["f16", "q8_0"]) {
    layers.push(...merged({ workgroupLanes: 512 }, { ...cached, cache }).layers);
  }
  expect(layers.length).toBeGreaterThanOrEqual(12);
  return layers.map(({ code }) => code);
});
