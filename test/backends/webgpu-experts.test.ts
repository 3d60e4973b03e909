// Experts of the WebGPU backend, in batches whose pairs of tokens and slots are computed one by one, and in batches where pairs of the
// same expert share its weights: every value as the reference has it, and the same bits for a token alone and among others. Which
// kernels there are: expert-kernels.test.ts.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { type Tuning, tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { Batch } from "../../src/graph/batch.ts";
import type { Graph } from "../../src/graph/graph.ts";
import { someOf } from "../support/exhaustive.ts";
import { type ExpertGraphOptions, expertGraph } from "../support/expert-graph.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { loadSamples } from "../support/sample-weights.ts";

const limits = { maxTokens: 48, maxOutputs: 48 };

/** The first have the same routes, so that more pairs of an expert come together than fill a tile. */
const tokens = [...Array<number>(11).fill(5), 31, 0, 16, 5, 20, 7, 1, 30, 12, 19, 2, 4, 9, 8, 21];

const load = (backend: Backend, graph: Graph): Promise<void> => loadSamples(backend, graph, limits);

function batchOf(some: readonly number[]): Batch {
  const batch = new Batch(limits);
  some.forEach((token, position) => {
    batch.add(token, position, { blocks: Int32Array.of(0) }, true);
  });
  return batch;
}

/** Every value of a batch of these tokens, by name: [tokens][columns]. */
async function run(
  backend: Backend,
  some: readonly number[],
): Promise<Map<string, Float32Array[]>> {
  const seen = new Map<string, Float32Array[]>();
  const tap = ({ name }: { name: string }, data: Float32Array): void => {
    const cols = data.length / some.length;
    seen.set(
      name,
      some.map((_, row) => data.slice(row * cols, (row + 1) * cols)),
    );
  };
  await backend.run(batchOf(some), { tap });
  return seen;
}

interface Choice {
  tuned?: Partial<Tuning>;
  maxBindingBytes?: number;
  expertSlots?: number;
}

async function onGpu(
  options: ExpertGraphOptions,
  { tuned, maxBindingBytes, expertSlots }: Choice = {},
): Promise<WebGpuBackend> {
  const gpu = await openGpu(maxBindingBytes ? { limits: { maxBindingBytes } } : {});
  const tuning = { ...tuningFor(gpu.facts), ...tuned };
  const backend = new WebGpuBackend(gpu, { tuning, expertSlots });
  await load(backend, expertGraph(options));
  return backend;
}

/** The largest difference in a row, relative to its largest value. */
function distance(got: Float32Array, want: Float32Array): number {
  const most = want.reduce((max, value, i) => Math.max(max, Math.abs(got[i]! - value)), 0);
  const size = want.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
  return size === 0 ? most : most / size;
}

/** Alone, few tokens, all: like the reference and like each other. */
async function expectSame(options: ExpertGraphOptions, choice?: Choice): Promise<void> {
  const reference = new ReferenceBackend();
  await load(reference, expertGraph(options));
  const backend = await onGpu(options, choice);
  const names = (some: readonly number[]) =>
    backend
      .kernelsOf(batchOf(some), ({ name }) => name.startsWith("matmul-experts"))
      .map(({ name }) => name);
  expect(names(tokens).every((name) => / x\d /.test(name))).toBe(true);
  expect(names(tokens.slice(0, 2)).some((name) => / x\d /.test(name))).toBe(false);
  // gate, up, down, odd; and the second parts of the first three.
  expect(names(tokens)).toHaveLength(choice?.maxBindingBytes ? 7 : 4);
  const want = await run(reference, tokens);
  const together = await run(backend, tokens);
  expect([...together.keys()]).toEqual([...want.keys()]);
  for (const [name, rows] of together) {
    const off = rows.map((row, i) => distance(row, want.get(name)![i]!));
    // A last bit may send an activation to the other neighbour in its type.
    const sorted = off.toSorted((a, b) => a - b);
    expect(sorted.at(-1), `${name}: ${off}`).toBeLessThan(1e-2);
    expect(sorted[off.length >> 1], `${name}: ${off}`).toBeLessThan(1e-4);
  }
  for (const some of [
    tokens.slice(9),
    tokens.slice(9, 14),
    ...tokens.slice(10, 14).map((t) => [t]),
  ]) {
    const first = tokens.indexOf(some[0]!);
    for (const [name, rows] of await run(backend, some)) {
      rows.forEach((row, i) => {
        const at = some.length === 1 ? first : i + 9;
        expect(row, `${name}, token ${i} of ${some.length}`).toEqual(together.get(name)![at]);
      });
    }
  }
  backend.dispose();
}

describeGpu("webgpu, experts", () => {
  const types = ["q4_0", "q4_1", "q8_0", "mxfp4", "q6_k", "f16"];
  test.each(someOf("types", types, ["mxfp4", "f16"]))("%s", async (type) => {
    await expectSame({ type });
  });
  test("another type for down, whose rows are shorter; no packed dot products", async () => {
    const options = { type: "q4_k", downType: "q8_0", inner: 96 };
    await expectSame(options, { tuned: { packedDots: false } });
  });
  test("weights in two parts, between rows of an expert", async () => {
    // 8 experts of 256 rows of 144 bytes.
    await expectSame({ type: "q4_0" }, { maxBindingBytes: 200_004 });
  });
  test("subgroups that share rows, tiles of every size; experts that share matrices: a token may name one twice", async () => {
    const smallBatch = { most: 16, rows: 4, tiles: [2, 4, 8] };
    const shapeFor = () => ({ rows: 4, subgroups: 4, split: 2, ahead: 2 });
    const options = { type: "q4_0", embed: 1216, sharing: 2 };
    await expectSame(options, { tuned: { smallBatch, shapeFor } });
  });

  test("the same bits with experts in slots", async () => {
    const type = "q8_0";
    const all = await onGpu({ type });
    const want = await run(all, tokens);
    all.dispose();
    const some = await onGpu({ type }, { expertSlots: 3 });
    expect(some.explain().join("\n")).toContain("3 of 8 in GPU memory");
    for (const batch of [tokens, [5], tokens]) {
      const rows = await run(some, batch);
      for (const [name, got] of rows)
        expect(got, name).toEqual(want.get(name)!.slice(0, batch.length));
    }
    some.dispose();
  });
});
