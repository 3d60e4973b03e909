// Experts of large batches on matrix units, with units that are emulated in workgroup memory: as the reference has them, with the same bits
// for a token in every such batch, whatever shares its tiles, and with experts in slots. Smaller batches: webgpu-experts.test.ts. Which kernels
// there are: expert-kernels.test.ts.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import type { MatrixShape } from "../../src/backends/webgpu/wgsl/matrix-shapes.ts";
import { Batch } from "../../src/graph/batch.ts";
import type { Graph } from "../../src/graph/graph.ts";
import { emulatedMatrices } from "../support/emulated-matrices.ts";
import { someOf } from "../support/exhaustive.ts";
import { expertGraph } from "../support/expert-graph.ts";
import { describeHalves, openGpu } from "../support/gpu.ts";
import { type RoutedGraphOptions, routedGraph } from "../support/routed-graph.ts";
import { loadSamples } from "../support/sample-weights.ts";

const limits = { maxTokens: 56, maxOutputs: 56 };

/** From so many tokens on. */
const LEAST = 17;

/** The first have the same routes: more pairs of an expert than fill a tile of 32. */
const tokens = Array.from({ length: 56 }, (_, i) => (i < 38 ? 5 : (i * 7) % 32));

/** Small, so that a software driver compiles it soon. */
const usual: MatrixShape = {
  ...{ ownOutputs: 2, ownTokens: 1, outputSubgroups: 1, tokenSubgroups: 2 },
  ...{ depth: 32, ahead: 2, cost: 1 },
};

async function onMatrices(
  graph: Graph,
  shape: MatrixShape = usual,
  expertSlots?: number,
): Promise<WebGpuBackend> {
  const gpu = await openGpu();
  const tuning = tuningFor(gpu.facts);
  const backend = new WebGpuBackend(gpu, {
    tuning: {
      ...tuning,
      smallBatch: { ...tuning.smallBatch, most: LEAST - 1 },
      expertMatrices: { usual: shape, wide: shape },
    },
    matrixCalls: emulatedMatrices,
    expertSlots,
  });
  await loadSamples(backend, graph, limits);
  return backend;
}

function batchOf(some: readonly number[]): Batch {
  const batch = new Batch(limits);
  some.forEach((token, position) => {
    batch.add(token, position, { blocks: Int32Array.of(0, 0) }, true);
  });
  return batch;
}

/** What the last layer gives each of these tokens. */
async function run(
  backend: Backend,
  some: readonly number[],
  embed: number,
): Promise<Float32Array[]> {
  await backend.run(batchOf(some));
  const rows = some.map(() => new Float32Array(embed));
  for (const [i, row] of rows.entries()) await backend.read("hidden", i, row);
  return rows;
}

/** The largest difference in a row, relative to its largest value. */
function distance(got: Float32Array, want: Float32Array): number {
  const most = want.reduce((max, value, i) => Math.max(max, Math.abs(got[i]! - value)), 0);
  const size = want.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
  return size === 0 ? most : most / size;
}

const expertsIn = (backend: WebGpuBackend, count: number): string[] =>
  backend
    .kernelsOf(batchOf(tokens.slice(0, count)), ({ name }) => /^(matmul[-_]|gate)/.test(name))
    .map(({ name }) => name)
    .filter((name) => /^(matmul-experts|matmul_id|gate)/.test(name));

/** Fused, as models have them. */
async function expectSame(options: RoutedGraphOptions, shape?: MatrixShape): Promise<void> {
  const graph = routedGraph(options);
  const { embed = 256 } = options;
  const reference = new ReferenceBackend();
  await loadSamples(reference, graph, limits);
  const backend = await onMatrices(graph, shape);
  // Of both layers: gate and up with their activation, and down.
  const names = expertsIn(backend, LEAST);
  expect(names).toHaveLength(4);
  expect(names.every((name) => name.startsWith("matmul-experts matrices"))).toBe(true);
  expect(expertsIn(backend, LEAST - 1).some((name) => name.includes("matrices"))).toBe(false);
  expect(backend.sameBitsTokens).toBe(LEAST - 1);
  const want = await run(reference, tokens, embed);
  const all = await run(backend, tokens, embed);
  const off = all.map((row, i) => distance(row, want[i]!)).toSorted((a, b) => a - b);
  // The routes of the second layer may turn over where two experts are almost equally likely.
  expect(off.at(-1), `${off}`).toBeLessThan(3e-2);
  expect(off[off.length >> 1], `${off}`).toBeLessThan(1e-2);
  for (const [from, to] of [
    [0, LEAST],
    [20, 45],
    [39, 56],
  ] as const) {
    const rows = await run(backend, tokens.slice(from, to), embed);
    rows.forEach((row, i) => {
      expect(row, `token ${from + i} of ${from} to ${to}`).toEqual(all[from + i]);
    });
  }
  backend.dispose();
}

/** Emulated units take minutes to compile. */
const timeout = 900_000;

describeHalves("webgpu, experts on matrix units", () => {
  const types = ["q4_0", "q4_1", "q8_0", "q4_k", "f16"];
  test.each(someOf("types", types, ["q4_0", "f16"]))("%s", { timeout }, async (type) => {
    await expectSame({ type });
  });
  test("biases and the activation of gpt-oss; outputs that fill no tile", {
    timeout,
  }, async () => {
    const routing = { gating: "softmax_chosen", normalise: false } as const;
    const options = { type: "mxfp4", bias: true, activation: "swiglu_oai", embed: 320 } as const;
    const shape = { ...usual, outputSubgroups: 2, turns: 2, ahead: 1 };
    await expectSame({ ...options, inner: 160, routing }, shape);
  });

  test("node by node, every value; and a type that lanes cannot multiply", {
    timeout,
  }, async () => {
    const graph = expertGraph({ type: "q8_0", downType: "q5_0" });
    const reference = new ReferenceBackend();
    await loadSamples(reference, graph, limits);
    const backend = await onMatrices(graph);
    // gate and up of different nodes, down, and one with a bias and few outputs.
    expect(expertsIn(backend, LEAST).filter((name) => name.includes("matrices"))).toHaveLength(4);
    const valuesOf = async (from: Backend): Promise<Map<string, Float32Array>> => {
      const seen = new Map<string, Float32Array>();
      const tap = ({ name }: { name: string }, data: Float32Array): void => {
        seen.set(name, data.slice());
      };
      await from.run(batchOf(tokens), { tap });
      return seen;
    };
    const want = await valuesOf(reference);
    const got = await valuesOf(backend);
    expect([...got.keys()]).toEqual([...want.keys()]);
    for (const [name, values] of got) {
      expect(distance(values, want.get(name)!), name).toBeLessThan(1e-2);
    }
    backend.dispose();
  });

  test("the same bits with experts in slots, in several passes", { timeout }, async () => {
    const options = { type: "q4_0", bias: true, activation: "swiglu_oai" } as const;
    const graph = routedGraph(options);
    const all = await onMatrices(graph);
    const want = await run(all, tokens, 256);
    all.dispose();
    const some = await onMatrices(graph, usual, 3);
    expect(expertsIn(some, LEAST).filter((name) => name.includes("matrices"))).toHaveLength(6);
    expect(await run(some, tokens, 256)).toEqual(want);
    expect(await run(some, tokens.slice(30), 256)).toEqual(want.slice(30));
    some.dispose();
  });
});
