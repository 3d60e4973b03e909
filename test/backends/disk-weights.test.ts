// Weights on disk in the CPU backend: logits have the same bits as with all weights in memory; a file that ends in the middle of a
// batch fails that batch with its name, and later batches work again. And the ring: nothing is overwritten that is still needed.

import { truncateSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { planDisk } from "../../src/backends/cpu/disk/plan.ts";
import type { DiskPlan } from "../../src/backends/cpu/disk/ring.ts";
import type { WeightStore } from "../../src/backends/cpu/memory/weights.ts";
import { SourceError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Graph, Weight } from "../../src/graph/graph.ts";
import { Random } from "../support/random.ts";
import type { TinyOptions } from "../support/tiny-engine.ts";
import { loaded } from "./disk-model.ts";
import { runBatches } from "./tiny-backend.ts";

test.each([{ weightType: "q8_0", layers: 12, feedForward: 2048 }] as (TinyOptions & {
  layers: number;
})[])(
  "$weightType, %#: the same bits, also after a file ended in the middle of a batch",
  async (options) => {
    const inMemory = await loaded(options, 0);
    const expected = await runBatches(inMemory.backend, options);
    expect(inMemory.backend.onDisk()).toBeUndefined();
    await inMemory.close();
    const half = inMemory.content.length / 2;
    const { backend, path, content, close } = await loaded(options, half);
    try {
      const { weights, fileBytes } = backend.onDisk()!;
      expect(weights).toBeGreaterThan(options.layers);
      expect(fileBytes).toBeLessThan(content.length);
      expect(await runBatches(backend, options)).toEqual(expected);
      truncateSync(path, content.length / 3);
      const failed = await runBatches(backend, options).catch((error: unknown) => error);
      expect(failed).toBeInstanceOf(SourceError);
      expect((failed as Error).message).toMatch(
        /^a weight could not be read from disk: blk\.\d+\.\w+\.weight: the file ends at byte \d+\./,
      );
      writeFileSync(path, content);
      expect(await runBatches(backend, options)).toEqual(expected);
    } finally {
      await close();
    }
  },
);

/** A plan for matrices of these sizes, all in one file; `part` of them may be in memory. */
function planOf(sizes: readonly number[], part: number): DiskPlan {
  const dtype = dtypeByName("f32")!;
  const weights = sizes.map((size, i): Weight => ({ name: `w${i}`, shape: [16, size], dtype }));
  const nodes = weights.map((weight) => ({ op: "matmul", weight, out: { rows: "tokens" } }));
  const sum = sizes.reduce((a, b) => a + 64 * b, 0);
  const plan = planDisk({
    graph: { nodes } as unknown as Graph,
    weights: { panelBytes: ({ shape }: Weight) => shape[1]! * 64 } as unknown as WeightStore,
    totalBytes: sum,
    budgetBytes: Math.floor(sum * part),
    files: { partsOf: () => [{ descriptor: 0, offset: 0 }], readAt: () => 0 },
  });
  if (typeof plan === "string") throw new Error(plan);
  return plan;
}

test("the ring: a weight is written where all before it are released, and needs none behind it", () => {
  const random = new Random(3);
  for (let round = 0; round < 4; round++) {
    const sizes = Array.from({ length: 120 }, () => 100 + random.below(4000));
    const { places, ringBytes, setBytes } = planOf(sizes, 0.3 + random.below(50) / 100);
    const all = [...places, ...places];
    for (const [i, { at, panelBytes, needs }] of places.entries()) {
      expect(needs).toBeLessThanOrEqual(i);
      expect(at + panelBytes).toBeLessThanOrEqual(ringBytes);
      expect(panelBytes).toBeLessThanOrEqual(setBytes);
      // Whoever was there before, in this round or the one before, is among the released.
      for (let before = 0; before < i + places.length; before++) {
        const other = all[before]!;
        const overlaps = other.at < at + panelBytes && at < other.at + other.panelBytes;
        if (overlaps) expect(before - places.length).toBeLessThan(needs);
      }
    }
  }
});

test("weights on disk are spread over the model, and the rest takes what was allowed", () => {
  const sizes = Array.from({ length: 160 }, () => 4096);
  const { places, ringBytes } = planOf(sizes, 0.5);
  const bytes = 64 * 4096;
  const inMemory = (160 - places.length) * bytes;
  expect(inMemory + ringBytes).toBeLessThan(80 * bytes);
  expect(inMemory + ringBytes).toBeGreaterThan(60 * bytes);
  const firstHalf = places.filter(({ weight }) => Number(weight.name.slice(1)) < 80).length;
  expect(Math.abs(firstHalf - places.length / 2)).toBeLessThanOrEqual(1);
});
