// The kernels of experts on the GPU: which there are for a mixture, what they share, and whether Dawn takes their texts for a GPU with
// teams of 32 lanes, which no software adapter has. What they compute: webgpu-experts.test.ts.
// Held against: Dawn's compiler, and lists of kernels written here.

import { expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { layOut } from "../../src/backends/webgpu/buffers.ts";
import type { GpuFacts } from "../../src/backends/webgpu/device.ts";
import { lowerPlan } from "../../src/backends/webgpu/program.ts";
import { tuningFor } from "../../src/backends/webgpu/tuning.ts";
import {
  mostMatrixRows,
  mostTiles,
  tileWords,
} from "../../src/backends/webgpu/wgsl/group-pairs.ts";
import type { Kernel } from "../../src/backends/webgpu/wgsl/kernel.ts";
import { namedCalls } from "../../src/backends/webgpu/wgsl/matrix-calls.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Graph } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { type ExpertGraphOptions, expertGraph } from "../support/expert-graph.ts";
import { subgroupGpu } from "../support/gpu-facts.ts";
import { testTexts } from "../support/null-gpu.ts";
import { type RoutedGraphOptions, routedGraph } from "../support/routed-graph.ts";

/** With as many bindings as Dawn has. */
const largeGpu = { ...subgroupGpu, storageBuffers: 16 };
const matrixGpu = { ...largeGpu, subgroupMatrix: true };

function kernelsOf(options: ExpertGraphOptions, slots?: number, wide = false): Kernel[] {
  return loweredOf(expertGraph(options), subgroupGpu, slots, wide);
}

function loweredOf(graph: Graph, facts: GpuFacts, slots?: number, wide = false): Kernel[] {
  const plan = makePlan(graph, { maxTokens: 512, maxOutputs: 8 });
  const layout = layOut(plan, evenCapacity(4, dtypeByName("f16")!), facts, false, slots);
  const by = "groups" as const;
  const calls = facts.subgroupMatrix ? namedCalls : undefined;
  const parts = lowerPlan(facts, layout, tuningFor(facts), calls, by, wide);
  return parts.flatMap(({ kernels }) => kernels);
}

/** Of the matmuls, in a batch of so many tokens. */
const namesIn = (kernels: readonly Kernel[], tokens: number): string[] =>
  kernels
    .filter(({ rows, minRows, maxRows }) => {
      return rows === "tokens" && tokens >= minRows && tokens <= maxRows;
    })
    .map(({ name }) => name)
    .filter((name) => /^(matmul|prepare|round|group)/.test(name));

test("activations are prepared once, pairs are grouped once, and small batches group none", () => {
  const kernels = kernelsOf({ type: "q4_0", inner: 512 });
  const few = [
    "prepare to q8_0 [256]",
    "matmul-experts q4_0 [8, 512, 256]",
    "matmul-experts q4_0 [8, 512, 256]",
    "prepare to q8_0 [512]",
    "matmul-experts q4_0 [8, 256, 512]",
    // `down` took the place of what the others had in common.
    "prepare to q8_0 [256]",
    "matmul-experts q4_0 [8, 37, 256]",
  ];
  // 4 slots: 64 pairs.
  for (const tokens of [1, 2, 16]) expect(namesIn(kernels, tokens)).toEqual(few);
  const many = few.map((name) => name.replace("experts", "experts x8"));
  many.splice(1, 0, "group pairs [4 of 8]");
  for (const tokens of [17, 512]) expect(namesIn(kernels, tokens)).toEqual(many);
  // Pairs have their own activations beside `down`, tokens beside the others.
  const prepares = kernels.filter(({ name }) => name.startsWith("prepare"));
  expect(prepares.map(({ grid }) => grid(3)[0])).toEqual([3, 12, 3]);
  // Rows have the same bits in every batch.
  const isOfMatmuls = ({ name }: Kernel) => /^(matmul|prepare|group)/.test(name);
  expect(kernels.filter(isOfMatmuls).every(({ sameBits }) => sameBits)).toBe(true);
});

test("a layer's mixture: three dispatches of a token, with the norm, the routes and the residual", () => {
  const namesOf = (options: Partial<RoutedGraphOptions>, facts = largeGpu, slots?: number) => {
    const kernels = loweredOf(routedGraph({ type: "q4_0", ...options }), facts, slots);
    const own = kernels.filter(({ rows, minRows }) => rows === "tokens" && minRows <= 1);
    return own.map(({ name }) => name).slice(1, own.length / 2 + 1);
  };
  const router = "matmul norm f32 [8, 256]";
  expect(namesOf({ inner: 512 })).toEqual([
    router,
    "matmul-experts norm route q4_0 gate to record [8, 1024, 256]",
    "matmul-experts q4_0 of record combine add [8, 256, 512]",
  ]);
  // Blocks of 256 values are more than a workgroup computes.
  expect(namesOf({ inner: 512, downType: "q4_k" })).toEqual([
    router,
    "matmul-experts norm route q4_0 gate [8, 1024, 256]",
    "prepare to q8_k [512]",
    "matmul-experts q4_k combine add [8, 256, 512]",
  ]);
  const apart = ["rms_norm [256]", "matmul f32 [8, 256]"];
  // The host has a part in it, behind the routes: bits are the same, as experts normalise what they prepare.
  expect(namesOf({}, largeGpu, 3).slice(0, 3)).toEqual([
    router,
    "route softmax [4 of 8]",
    "prepare norm to q8_0 [256]",
  ]);
  // A type that lanes do not multiply; few bindings.
  expect(namesOf({ type: "q5_0" }).slice(0, 2)).toEqual(apart);
  expect(namesOf({ bias: true }, subgroupGpu).slice(0, 2)).toEqual(apart);
  expect(namesOf({ bias: true })).toHaveLength(3);
  // In the second layer another node reads the norm.
  const kept = loweredOf(routedGraph({ type: "q4_0", keepsNorm: true }), largeGpu);
  expect(kept.filter(({ name }) => name.startsWith("rms_norm"))).toHaveLength(1);
});

test("batches of more than 32 tokens on matrix units: rows are grouped and gathered once for gate and up", () => {
  const kernels = loweredOf(routedGraph({ type: "q4_0", inner: 512 }), matrixGpu);
  const names = (tokens: number) => namesIn(kernels, tokens);
  const many = [
    "prepare norm to q8_0 [256]",
    "matmul-small-batch x8 f32 [8, 256]",
    "group rows x64 [4 of 8]",
    "prepare to q8_0 in halves by expert [256]",
    "matmul-experts matrices 64x64 q4_0 gate [8, 1024, 256]",
    "prepare to q8_0 in halves by expert [512]",
    "matmul-experts matrices 64x64 q4_0 [8, 256, 512]",
  ];
  for (const tokens of [33, 64, 512]) expect(names(tokens)).toEqual([...many, ...many]);
  const isMatrices = (name: string) => /matrices|rows|by expert/.test(name);
  for (const tokens of [1, 2, 8, 32]) expect(names(tokens).some(isMatrices)).toBe(false);
  // Their bits are others, and a slot is no other kernel's.
  const differing = kernels.filter(({ sameBits }) => !sameBits).map(({ minRows }) => minRows);
  expect(Math.min(...differing.filter((rows) => rows > 1))).toBe(33);
  const inSlots = namesIn(loweredOf(routedGraph({ type: "q4_0" }), matrixGpu, 3), 33);
  expect(inSlots.filter((name) => name.startsWith("group"))).toHaveLength(2);
  expect(inSlots.filter((name) => name.includes("by expert"))).toHaveLength(4);
  expect(inSlots.filter((name) => name.includes("experts matrices"))).toHaveLength(6);
});

test("node by node: what is prepared for matrix units is not taken for something else", () => {
  // gate, up and down on matrix units; then `odd` reads what gate and up have read, and `down` was prepared since.
  const names = namesIn(loweredOf(expertGraph({ type: "q5_k" }), matrixGpu), 33);
  expect(names).toEqual([
    "group rows x64 [4 of 8]",
    "prepare to q8_k in halves by expert [256]",
    "matmul-experts matrices 64x64 q5_k [8, 256, 256]",
    "matmul-experts matrices 64x64 q5_k [8, 256, 256]",
    "prepare to q8_k in halves by expert [256]",
    "matmul-experts matrices 64x64 q5_k [8, 256, 256]",
    "prepare to q8_k in halves by expert [256]",
    "matmul-experts matrices 64x64 q5_k [8, 37, 256]",
  ]);
  // Only `down` is: its rows have a type that half floats are good for.
  const mixed = namesIn(loweredOf(expertGraph({ type: "f32", downType: "q8_0" }), matrixGpu), 33);
  expect(mixed.filter((name) => /group|by expert|matrices/.test(name))).toEqual([
    "group pairs [4 of 8]",
    "group rows x64 [4 of 8]",
    "prepare to q8_0 in halves by expert [256]",
    "matmul-experts matrices 64x64 q8_0 [8, 256, 256]",
    "group pairs [4 of 8]",
  ]);
});

test("without room, in parts, or with rows that are no whole tiles, experts are not on matrix units", () => {
  const onMatrices = (graph: Graph, facts: GpuFacts = matrixGpu, wide = false) =>
    namesIn(loweredOf(graph, facts, undefined, wide), 512).filter((name) =>
      name.includes("experts matrices"),
    ).length;
  const graph = (options: Partial<ExpertGraphOptions>) => expertGraph({ type: "q8_0", ...options });
  expect(onMatrices(graph({}))).toBe(4);
  expect(onMatrices(graph({ type: "f32" }))).toBe(0);
  expect(onMatrices(graph({ type: "f16" }), matrixGpu, true)).toBe(0);
  expect(onMatrices(graph({ type: "q8_0" }), matrixGpu, true)).toBe(4);
  // Rows of 96: gate, up and odd have 256.
  expect(onMatrices(graph({ inner: 96 }))).toBe(3);
  // 64 * 256 * 272 bytes of gate, up and down are in parts; odd has fewer.
  const parts = graph({ experts: 64, used: 1 });
  expect(onMatrices(parts)).toBe(4);
  expect(onMatrices(parts, { ...matrixGpu, maxBindingBytes: 2_000_000 })).toBe(1);
  // 512 experts with a pair each, and so with 16 rows of 512 bytes. Rows of down have 32 columns.
  const many = graph({ type: "q4_0", experts: 600, used: 1, inner: 32 });
  expect(onMatrices(many)).toBe(3);
  expect(onMatrices(many, { ...matrixGpu, maxBindingBytes: 4_000_000 })).toBe(0);
});

test("what lanes cannot multiply, or half floats not hold, stays in floats", () => {
  const names = (...options: Parameters<typeof kernelsOf>) => {
    return new Set(namesIn(kernelsOf(...options), 1).map((name) => name.split(" ")[0]));
  };
  expect(names({ type: "q5_0" })).toEqual(new Set(["round", "matmul_id"]));
  expect(names({ type: "f16", embed: 52 })).toEqual(
    new Set(["round", "matmul_id", "prepare", "matmul-experts"]),
  );
  expect(names({ type: "f16" })).toEqual(new Set(["prepare", "matmul-experts"]));
  expect(names({ type: "f16" }, undefined, true)).toEqual(new Set(["round", "matmul_id"]));
  expect(names({ type: "q4_0" }, undefined, true)).toEqual(new Set(["prepare", "matmul-experts"]));
});

test("there is room for all tiles, however pairs fall", () => {
  const tilesOf = (counts: readonly number[], tile: number) =>
    counts.reduce((sum, count) => sum + Math.ceil(count / tile), 0);
  const falls = [[1], [9], [8, 8], [1, 1, 1, 1], [40, 0, 0, 1], [9, 9, 9, 9], [0, 0, 7]];
  for (const tile of [1, 2, 4, 8]) {
    for (const counts of falls) {
      const pairs = counts.reduce((a, b) => a + b);
      const tiles = tilesOf(counts, tile);
      expect(tiles).toBeLessThanOrEqual(mostTiles(pairs, counts.length, tile));
      const words = 1 + mostTiles(pairs, counts.length, tile) * (2 + tile);
      expect(words).toBeLessThanOrEqual(tileWords(pairs, counts.length));
    }
  }
  for (const counts of falls) {
    const pairs = counts.reduce((a, b) => a + b);
    const rows = 16 * tilesOf(counts, 16);
    expect(rows).toBeLessThanOrEqual(mostMatrixRows(pairs, counts.length));
    // A tile of 3 words, 16 pairs and 16 rows for each 16 rows.
    expect(1 + (rows / 16) * 35).toBeLessThanOrEqual(tileWords(pairs, counts.length));
  }
});

await testTexts(["q4_0", "q4_1", "q8_0", "mxfp4", "q4_k", "q6_k", "f16"], (type) => {
  const sizes = { experts: 600, used: 8, inner: 2048 };
  const kernels = [
    ...[...kernelsOf({ type, ...sizes }), ...kernelsOf({ type, ...sizes }, 3)],
    ...loweredOf(routedGraph({ type, bias: true, experts: 128, used: 6 }), largeGpu),
    ...loweredOf(routedGraph({ type, downType: "q8_0", inner: 512 }), largeGpu),
    ...loweredOf(routedGraph({ type, bias: true, activation: "swiglu_oai" }), matrixGpu),
    ...loweredOf(routedGraph({ type, downType: "q5_0" }), matrixGpu, 3),
  ];
  return new Set(kernels.map(({ code }) => code));
});
