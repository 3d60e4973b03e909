// Opt levels 1 and 2, and the plain loops of `bench matmul`: opt level 1 has the reference's bits on any number of threads; register tiles over the rows of the file
// have its values, as in the seed's experiment (B0 x B1 up to 5x5, Q4_1 up to 4x4), whatever rows and tokens are left over.

import { expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { allBackends } from "../../src/backends/table.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { MOST_ROW_TILE } from "../../src/kernels/ops/matmul/row-tiles.ts";
import { currentPlatform } from "../../src/platform/current.ts";
import { floats, matmulBatch, matmulGraph, uploadSample } from "../../src/tune/matmul-graph.ts";
import type { TinyOptions } from "../support/tiny-engine.ts";
import { load, runBatches } from "./tiny-backend.ts";

const maxTokens = 11;
const limits = { maxTokens, maxOutputs: maxTokens };

async function results(
  backend: Backend,
  type: string,
  n: number,
  k: number,
  explained?: (lines: readonly string[]) => void,
): Promise<Float32Array[]> {
  const graph = matmulGraph(dtypeByName(type)!, n, k);
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, floats));
  for (const weight of graph.weights) await uploadSample(backend, weight);
  const all: Float32Array[] = [];
  for (const tokens of [1, 2, 3, maxTokens]) {
    await backend.run(matmulBatch(tokens, limits));
    for (let row = 0; row < tokens; row++) {
      const target = new Float32Array(n);
      await backend.read("logits", row, target);
      all.push(target);
    }
  }
  explained?.(backend.explain());
  backend.dispose();
  return all;
}

function largestError(got: readonly Float32Array[], expected: readonly Float32Array[]): number {
  const largest = Math.max(...expected.flatMap((row) => [...row].map(Math.abs)));
  const errors = expected.flatMap((row, r) => [...row].map((v, i) => Math.abs(v - got[r]![i]!)));
  return Math.max(...errors) / largest;
}

const alone = { threads: 1, startThread: undefined } as const;
const types = [
  { type: "f32", tiles: ["1x1", "2x3", "5x1", "1x5", "5x4", "5x5"], how: "f32 as floats" },
  { type: "q4_1", tiles: ["1x1", "2x3", "4x1", "1x4", "4x4"], how: "q4_1 as integers" },
  { type: "q4_0", tiles: ["1x1", "3x2"], how: "q4_0 as integers" },
  { type: "q8_0", tiles: ["1x1", "3x2"], how: "q8_0 as integers" },
  { type: "q6_k", tiles: [`2x${MOST_ROW_TILE}`], how: "q6_k as floats" },
];

test.each(types)("$type: register tiles have the reference's values", async (one) => {
  const { type, tiles, how } = one;
  const [n, k] = [23, 256];
  const expected = await results(new ReferenceBackend(), type, n, k);
  for (const tile of tiles) {
    const [rows, tokens] = tile.split("x").map(Number) as [number, number];
    const backend = new CpuBackend({ level: 2, ...alone, rowTile: { rows, tokens } });
    const got = await results(backend, type, n, k, (lines) => {
      expect(lines).toContain(`matmul: ${how}, rows as in the file, register tile ${tile}`);
    });
    expect(largestError(got, expected), `${type} ${tile}`).toBeLessThan(2e-6);
  }
});

test.each(types)(
  "$type: loops as one writes them first have the reference's values",
  async ({ type }) => {
    const [n, k] = [23, 256];
    const expected = await results(new ReferenceBackend(), type, n, k);
    const backend = new CpuBackend({ level: 2, ...alone, rowTile: "scalar" });
    const got = await results(backend, type, n, k, (lines) => {
      expect(lines).toContainEqual(expect.stringMatching(/^matmul: scalar_rows \(row/));
    });
    expect(largestError(got, expected)).toBeLessThan(1e-5);
  },
);

test("opt level 2 multiplies Q4_1 as integers without being asked for a tile", async () => {
  const backend = new CpuBackend({ level: 2, ...alone });
  const graph = matmulGraph(dtypeByName("q4_1")!, 16, 64);
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, floats));
  expect(backend.explain().join("\n")).toContain("q4_1 as integers");
  backend.dispose();
});

const models: readonly TinyOptions[] = [
  { weightType: "q4_1" },
  { weightType: "f32", architecture: "qwen3" },
];

test.each(models)("opt level 1 on two threads has the reference's bits: %o", async (options) => {
  const reference = new ReferenceBackend();
  await load(reference, options);
  const expected = await runBatches(reference, options);
  const platform = await currentPlatform();
  const startThread = () => platform.startThread("compute");
  const request = { level: 1, threads: 2, startThread } as const;
  const entry = allBackends().find((candidate) => candidate.available(request) === true)!;
  const backend = entry.create(request);
  expect(entry.name).toBe("cpu");
  expect(backend.threads).toBe(2);
  await load(backend, options);
  expect(await runBatches(backend, options)).toEqual(expected);
  backend.dispose();
  const one = { level: 1, ...alone } as const;
  expect(allBackends().find((candidate) => candidate.available(one) === true)!.name).toBe(
    "reference",
  );
});
