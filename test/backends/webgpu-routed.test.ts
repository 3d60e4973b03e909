// A mixture of experts with its norm, its router and its residual on the GPU: as the reference has it, and the same bits for a token alone
// and among others. Nothing behind it rounds a difference away, as a matmul of quants would.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { type Tuning, tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { Batch } from "../../src/graph/batch.ts";
import { someOf } from "../support/exhaustive.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { type RoutedGraphOptions, routedGraph } from "../support/routed-graph.ts";
import { loadSamples } from "../support/sample-weights.ts";

const limits = { maxTokens: 48, maxOutputs: 48 };

const tokens = [...Array<number>(11).fill(5), 31, 0, 16, 5, 20, 7, 1, 30, 12, 19, 2, 4, 9, 8, 21];

/** What the last layer gives each of these tokens. */
async function run(
  backend: Backend,
  some: readonly number[],
  embed: number,
): Promise<Float32Array[]> {
  const batch = new Batch(limits);
  some.forEach((token, position) => {
    batch.add(token, position, { blocks: Int32Array.of(0) }, true);
  });
  await backend.run(batch);
  const rows = some.map(() => new Float32Array(embed));
  for (const [i, row] of rows.entries()) await backend.read("hidden", i, row);
  return rows;
}

/** The largest difference in a row, relative to its largest value. */
function distance(got: Float32Array, want: Float32Array): number {
  const most = want.reduce((max, value, i) => Math.max(max, Math.abs(got[i]! - value)), 0);
  return most / want.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
}

async function expectSame(options: RoutedGraphOptions, tuned: Partial<Tuning> = {}) {
  const graph = routedGraph(options);
  const { embed = 256 } = options;
  const reference = new ReferenceBackend();
  await loadSamples(reference, graph, limits);
  const gpu = await openGpu();
  const tuning = { ...tuningFor(gpu.facts), ...tuned };
  const backend = new WebGpuBackend(gpu, { tuning });
  await loadSamples(backend, graph, limits);
  expect(backend.sameBitsTokens).toBeGreaterThanOrEqual(tuning.smallBatch.most);
  const one = new Batch(limits);
  one.add(0, 0, { blocks: Int32Array.of(0) }, true);
  const names = backend.kernelsOf(one, () => true).map(({ name }) => name);
  expect(names.filter((name) => / combine add /.test(name))).toHaveLength(2);
  const want = await run(reference, tokens, embed);
  const together = await run(backend, tokens, embed);
  const off = together.map((row, i) => distance(row, want[i]!)).toSorted((a, b) => a - b);
  // A last bit may send an activation to the other neighbour in its type.
  expect(off.at(-1), `${off}`).toBeLessThan(3e-2);
  expect(off[off.length >> 1], `${off}`).toBeLessThan(1e-3);
  // Alone, and in batches whose pairs are computed one by one, or in tiles.
  const alone: Float32Array[] = [];
  for (const token of tokens.slice(10)) alone.push((await run(backend, [token], embed))[0]!);
  for (const count of [2, 3, 5, 8, 16]) {
    const rows = await run(backend, tokens.slice(10, 10 + count), embed);
    rows.forEach((row, i) => {
      expect(row, `token ${i} of ${count}`).toEqual(alone[i]);
    });
  }
  const first = alone.map((row, i) => distance(row, want[10 + i]!)).toSorted((a, b) => a - b);
  expect(first.at(-1), `${first}`).toBeLessThan(3e-2);
  expect(first[first.length >> 1], `${first}`).toBeLessThan(1e-3);
  backend.dispose();
}

describeGpu("webgpu, a layer's mixture of experts", () => {
  const types = ["q4_0", "q8_0", "mxfp4", "q4_k", "f16", "f32"];
  test.each(someOf("types", types, ["q4_0", "f16"]))("%s", async (type) => {
    await expectSame({ type });
  });
  test("biases and the activation of gpt-oss; rows that fill no workgroup", async () => {
    const routing = { gating: "softmax_chosen", normalise: false } as const;
    const options = { type: "mxfp4", bias: true, activation: "swiglu_oai", embed: 96 } as const;
    await expectSame({ ...options, inner: 160, routing });
  });
  test("slots that are no power of two, another type for down, subgroups with many lanes", async () => {
    const shapeFor = () => ({ rows: 4, subgroups: 8, split: 1, ahead: 2 });
    const options = { type: "q4_0", downType: "q8_0", used: 3, embed: 320, inner: 96 };
    await expectSame(options, { shapeFor });
  });
});
