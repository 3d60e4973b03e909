// A tiny model split between the processor and a GPU: every value as the reference has it, batches and copied blocks, a
// GPU that is lost, and limits of one that are too small. (split-models.test.ts has real models.)

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import type { GpuDeviceOptions } from "../../src/backends/webgpu/device.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { MemoryError, WorkerError } from "../../src/base/errors.ts";
import type { Engine } from "../../src/engine/engine.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import { expectSameValues } from "../conformance/same-values.ts";
import { describeGpu, gpuBackend, openOwnGpu } from "../support/gpu.ts";
import { Random } from "../support/random.ts";
import { tinyEngine, tinyShape } from "../support/tiny-engine.ts";
import { load, runBatches } from "./tiny-backend.ts";

async function split(
  layers: number | "all" | "auto",
  limits?: GpuDeviceOptions["limits"],
): Promise<Backend> {
  const host = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
  return new SplitBackend({ host, device: await gpuBackend(limits && { limits }), layers });
}

async function run(engine: Engine, tokens: number[], maxTokens: number): Promise<number[]> {
  const yieldThread = () => new Promise<void>((resolve) => setImmediate(resolve));
  const control: RunControl = { aborted: false, yieldThread, now: () => 0 };
  const options = { temperature: 0, maxTokens };
  return (await generate(engine, { tokens, options }, control, () => {})).tokenIds;
}

function prompt(seed: number, length: number): number[] {
  const random = new Random(seed);
  return Array.from({ length }, () => random.below(tinyShape.vocab));
}

describeGpu("cpu+webgpu", () => {
  test("hot neurons on the GPU, cold ones on the processor: logits as the reference has them", async () => {
    const options = { architecture: "nemotron", weightType: "q8_0", feedForward: 1280 };
    const logits = async (backend: Backend) => {
      await load(backend, options);
      const rows = await runBatches(backend, options);
      backend.dispose();
      return rows;
    };
    const expected = await logits(new ReferenceBackend());
    for (const layers of ["all", 0] as const) {
      const host = new CpuBackend({ level: 3, threads: 1, startThread: undefined, sparse: true });
      const device = await gpuBackend();
      const got = await logits(new SplitBackend({ host, device, layers, hotNeurons: 0.4 }));
      const apart = got.map((row, i) => {
        const size = Math.max(...expected[i]!.map(Math.abs));
        return Math.max(...row.map((value, j) => Math.abs(value - expected[i]![j]!))) / size;
      });
      expect(Math.max(...apart), `${layers}`).toBeLessThan(1e-3);
    }
  });

  test.each([1, 2])("-ngl %i: every value", async (layers) => {
    const batches = [
      [1, 0],
      [3, 2],
      [8, 4],
      [1, 1],
    ] as const;
    await expectSameValues(await split(layers), {}, 1e-5, batches);
  });

  test("in a batch everybody gets what they get alone, also what begins alike", async () => {
    const shared = prompt(9, 40);
    const prompts = [prompt(1, 3), [...shared, 5], [...shared, 7, 8]];
    const reference = await tinyEngine();
    const alone: number[][] = [];
    for (const tokens of prompts) alone.push(await run(reference, tokens, 4));
    reference.dispose();
    const engine = await tinyEngine({ backend: await split(2), cacheTokens: 1024 });
    expect(engine.info.backend.name).toBe("cpu+webgpu");
    expect(await Promise.all(prompts.map((tokens) => run(engine, tokens, 4)))).toEqual(alone);
    expect(await Promise.all(prompts.map((tokens) => run(engine, tokens, 4)))).toEqual(alone);
    engine.dispose();
  });

  test("a GPU that is lost is an error that says so, now and ever after", async () => {
    const gpu = await openOwnGpu();
    const host = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
    const backend = new SplitBackend({ host, device: new WebGpuBackend(gpu), layers: 2 });
    const engine = await tinyEngine({ backend });
    expect(await run(engine, [1, 2, 3], 1)).toHaveLength(1);
    gpu.device.destroy();
    await expect(run(engine, [1, 2, 3], 2)).rejects.toThrow(WorkerError);
    await expect(run(engine, [4], 1)).rejects.toThrow(
      /the GPU ".*" was lost .* The next request opens the model again/,
    );
    engine.dispose();
  });
});

describeGpu("a GPU that is too small", () => {
  test("its memory: how many layers would fit, and auto takes them", async () => {
    const limits = { memoryBytes: 150_000 };
    const all = async () => await tinyEngine({ backend: await split("all", limits) });
    await expect(all()).rejects.toThrow(MemoryError);
    await expect(all()).rejects.toThrow(
      /\d of its 3 layers would fit \(.*\): use `gpuLayers: \d` or/,
    );
    const engine = await tinyEngine({ backend: await split("auto", limits) });
    const [host, device] = engine.info.backend.placement;
    expect(host).toMatchObject({ backend: "cpu", firstLayer: 0, isDevice: false });
    expect(device).toMatchObject({ backend: "webgpu", hasOutput: true, isDevice: true });
    engine.dispose();
  });

  test("its bindings: what a layer of the cache needs, and what there is", async () => {
    const limits = { maxBindingBytes: 2 ** 15 };
    const backend = await split(2, limits);
    const opening = tinyEngine({ backend, contextSize: 512 });
    await expect(opening).rejects.toThrow(
      /a layer of the KV cache needs a buffer of 65536 bytes, but the GPU ".*" allows 32768/,
    );
    await expect(opening).rejects.toThrow(/1 of its 3 layers would fit/);
    backend.dispose();
  });
});
