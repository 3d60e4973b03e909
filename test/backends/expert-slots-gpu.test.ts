// Experts in fewer slots of GPU memory than there are: every value as the reference has it, and the same bits as with all experts in
// GPU memory, whatever was computed before.

import { expect, test } from "vitest";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { expectSameValues } from "../conformance/same-values.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { load, runBatches } from "./tiny-backend.ts";

const withSlots = async (expertSlots: number | undefined) =>
  new WebGpuBackend(await openGpu(), { expertSlots });

describeGpu("slots of experts", () => {
  test.each([1, 3])("%i of 4: every value", async (slots) => {
    const batches = [
      [5, 2],
      [1, 1],
    ] as const;
    await expectSameValues(await withSlots(slots), { architecture: "qwen3moe" }, 1e-4, batches);
  });

  test.each(["f32", "q8_0", "q4_0"])("%s: the bits do not depend on slots", async (expertType) => {
    const options = { architecture: "qwen3moe", expertType };
    const logits = async (slots: number | undefined) => {
      const backend = await withSlots(slots);
      await load(backend, options);
      const first = await runBatches(backend);
      expect(await runBatches(backend)).toEqual(first);
      const lines = backend.explain();
      backend.dispose();
      return { first, lines };
    };
    const all = await logits(undefined);
    for (const slots of [1, 2]) {
      const some = await logits(slots);
      expect(some.first).toEqual(all.first);
      expect(some.lines.join("\n")).toMatch(/experts: \d of 4 in GPU memory in each of 2 layers/);
      expect(some.lines.join("\n")).toMatch(/experts in slots: [\d.]+ % of \d+ uses/);
    }
  });

  test("the cache grows while batches run", async () => {
    const options = { architecture: "qwen3moe" };
    const backend = await withSlots(1);
    await load(backend, options);
    const expected = await runBatches(backend);
    // The host takes part in every layer of a batch: the cache becomes another one in between.
    let isRunning = true;
    let grown = 0;
    const growth = (async () => {
      for (let blocks = 5; isRunning; blocks++, grown++) await backend.growKv([blocks]);
    })();
    expect(await runBatches(backend)).toEqual(expected);
    isRunning = false;
    await growth;
    expect(grown).toBeGreaterThan(0);
    backend.dispose();
  });
});
