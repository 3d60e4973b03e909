// The engine on the GPU: batches, what is shared and what is copied of the cache, hidden states; weights in parts where the
// device's limits are small, limits that are too small, a lost device, use after dispose; and the option of open().

import { afterAll, beforeAll, expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { layOutWeights } from "../../src/backends/webgpu/weight-layout.ts";
import { DisposedError, MemoryError, UsageError, WorkerError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Engine } from "../../src/engine/engine.ts";
import { generate } from "../../src/engine/generator.ts";
import { Batch } from "../../src/graph/batch.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { open } from "../../src/index.ts";
import { buildModel } from "../../src/models/build.ts";
import { oracle, run } from "../engine/speculate/drafters.ts";
import { describeGpu, gpuBackend, openGpu, openOwnGpu } from "../support/gpu.ts";
import {
  greedyTokens,
  tinyEngine,
  tinyModel,
  tinyPrompt,
  tinyShape,
} from "../support/tiny-engine.ts";
import { tinyFile } from "../support/tiny-file.ts";

const limits = { maxTokens: 8, maxOutputs: 8 };
const table = { blocks: Int32Array.of(1, 0) };

/** The backend with the tiny model in it. */
async function loaded(backend: Backend, vocab: number = tinyShape.vocab): Promise<Backend> {
  const model = tinyModel({ vocab });
  const { graph } = buildModel(model);
  await backend.prepare(makePlan(graph, limits), evenCapacity(4, dtypeByName("f32")!));
  for (const weight of graph.weights) {
    await backend.upload(weight, async (target, at) => {
      target.set(model.bytes.get(weight.name)!.subarray(at, at + target.length));
    });
  }
  return backend;
}

function batchOf(tokens: readonly number[], first = 0, blocks = table): Batch {
  const batch = new Batch(limits);
  tokens.forEach((token, i) => {
    batch.add(token, first + i, blocks, true);
  });
  return batch;
}

async function logitsOf(
  backend: Backend,
  row: number,
  vocab: number = tinyShape.vocab,
): Promise<Float32Array> {
  const logits = new Float32Array(vocab);
  await backend.read("logits", row, logits);
  return logits;
}

/** The first `count` tokens of an answer that might have had `maxTokens`. */
async function firstTokens(
  engine: Engine,
  tokens: number[],
  count: number,
  maxTokens: number,
): Promise<number[]> {
  const yieldThread = () => new Promise<void>((resolve) => setImmediate(resolve));
  const control = { aborted: false, yieldThread, now: () => 0 };
  let seen = 0;
  const { tokenIds } = await generate(
    engine,
    { tokens, options: { temperature: 0, maxTokens } },
    control,
    () => {
      control.aborted = ++seen >= count;
    },
  );
  return tokenIds.slice(0, count);
}

function expectNear(got: Float32Array, want: Float32Array): void {
  const size = Math.max(...want.map(Math.abs));
  got.forEach((value, i) => {
    expect(Math.abs(value - want[i]!) / size).toBeLessThan(1e-5);
  });
}

describeGpu("webgpu, in the engine", () => {
  test("in a batch everybody gets what they get alone, also what begins alike", async () => {
    const shared = tinyPrompt(9, 40);
    const prompts = [tinyPrompt(1, 3), [...shared, 5], tinyPrompt(2, 1), [...shared, 7, 8]];
    const reference = await tinyEngine();
    const alone: number[][] = [];
    for (const tokens of prompts) alone.push(await greedyTokens(reference, tokens, 6));
    reference.dispose();
    const engine = await tinyEngine({ backend: await gpuBackend(), cacheTokens: 1024 });
    expect(await Promise.all(prompts.map((tokens) => greedyTokens(engine, tokens, 6)))).toEqual(
      alone,
    );
    // A second time their beginnings are known, and a block in the middle of which they part is copied.
    expect(await Promise.all(prompts.map((tokens) => greedyTokens(engine, tokens, 6)))).toEqual(
      alone,
    );
    engine.dispose();
  });

  test("the cache grows while others write, and keeps what it held", async () => {
    const prompts = [1, 2, 3, 4].map((seed) => tinyPrompt(seed, 30));
    const reference = await tinyEngine();
    const alone: number[][] = [];
    for (const tokens of prompts) alone.push(await greedyTokens(reference, tokens, 40));
    reference.dispose();
    const backend = await gpuBackend();
    const engine = await tinyEngine({ backend, contextSize: 512, parallel: 4 });
    const { kvBytes } = backend.memory();
    // Enough for 256 tokens of each: a block more, since the first may have to be copied.
    expect(engine.status()).toMatchObject({ kvBlocks: 68, kvBlocksHeld: 36 });
    // They may have 460 tokens each.
    const together = prompts.map((tokens) => firstTokens(engine, tokens, 40, 430));
    expect(await Promise.all(together)).toEqual(alone);
    const { kvBlocksHeld } = engine.status();
    expect(kvBlocksHeld).toBeGreaterThan(36);
    expect(backend.memory().kvBytes).toBe((kvBytes / 36) * kvBlocksHeld);
    engine.dispose();
  });

  test("from the start there is memory for everybody, if that is no more than short requests need", async () => {
    const backend = await gpuBackend();
    const engine = await tinyEngine({ backend, contextSize: 96, parallel: 4 });
    expect(engine.status()).toMatchObject({ kvBlocks: 16, kvBlocksHeld: 16 });
    expect(engine.info.firstStateBytes).toBe(engine.info.stateBytes);
    expect(engine.info.firstStateBytes).toBe(backend.memory().kvBytes);
    engine.dispose();
  });

  // Types with kernels for several tokens, and one that has none: its batches of more than 4 tokens sum in another order.
  test.each([
    ["q8_0", 16],
    ["iq4_nl", 4],
  ])("drafts: the text is the same, %s", async (weightType, most) => {
    const backend = await gpuBackend();
    const engine = await tinyEngine({ backend, weightType, layers: 1 });
    const { smallBatch } = tuningFor((await openGpu()).facts);
    const same = most > 4 ? smallBatch.most : most;
    expect(backend.sameBitsTokens).toBe(same);
    const prompt = tinyPrompt(3, 20);
    const options = { temperature: 0.5, seed: 1, maxTokens: 40, speculate: { maxDepth: 31 } };
    const alone = await run(engine, prompt, { ...options, speculate: false });
    for (const wrong of [0, 0.2]) {
      const drafters = [oracle(alone.tokenIds, tinyShape.vocab, wrong)];
      const drafted = await run(engine, prompt, options, drafters);
      expect(drafted.tokenIds).toEqual(alone.tokenIds);
      const { accepted, draftedBatches } = drafted.timings.speculation!;
      expect(accepted).toBeGreaterThan(20);
      expect(accepted / draftedBatches).toBeLessThan(same);
    }
    engine.dispose();
  });

  test("a copied cache block holds what the other held", async () => {
    const backend = await loaded(await gpuBackend());
    await backend.run(batchOf([3, 1, 4, 1, 5]));
    backend.copyKvBlock(1, 3);
    await backend.run(batchOf([9], 5));
    const expected = await logitsOf(backend, 0);
    await backend.run(batchOf([2, 2, 2, 2, 2])); // overwrites block 1
    await backend.run(batchOf([9], 5, { blocks: Int32Array.of(3, 2) }));
    expect(await logitsOf(backend, 0)).toEqual(expected);
    backend.dispose();
  });

  test("hidden states are those of the reference", async () => {
    const states: Float32Array[] = [];
    for (const backend of [new ReferenceBackend(), await gpuBackend()]) {
      await loaded(backend);
      await backend.run(batchOf([3, 1, 4]));
      const state = new Float32Array(tinyShape.embed);
      await backend.read("hidden", 1, state);
      states.push(state);
      backend.dispose();
    }
    expectNear(states[1]!, states[0]!);
  });
});

describeGpu("webgpu, limits", () => {
  test("weights larger than a binding are computed in parts", async () => {
    // The table, which is the output matrix too, has 192,000 bytes.
    const vocab = 1500;
    const reference = await loaded(new ReferenceBackend(), vocab);
    const backend = await loaded(await gpuBackend({ limits: { maxBindingBytes: 100_000 } }), vocab);
    expect(backend.explain().join("\n")).toMatch(/token_embd.weight: in 2 parts/);
    // One by one, and in tiles; tokens of both parts.
    for (const tokens of [
      [7, 1499],
      [1498, 0, 780, 781, 782, 5, 6],
    ]) {
      await reference.run(batchOf(tokens));
      await backend.run(batchOf(tokens));
      expectNear(await logitsOf(backend, 1, vocab), await logitsOf(reference, 1, vocab));
    }
    backend.dispose();
  });

  test("a row that fits no binding, and a cache that does not, are refused with the numbers", async () => {
    const weight = { name: "wide", shape: [2, 4096], dtype: dtypeByName("f32")! };
    const limited = { maxBufferBytes: 2 ** 20, maxBindingBytes: 1024 };
    expect(() => layOutWeights([weight], limited)).toThrow(
      /a row of wide has 16384 bytes, but this GPU lets a shader read at most 1024/,
    );
    const backend = await gpuBackend({ limits: { maxBindingBytes: 2 ** 16 } });
    const { graph } = buildModel(tinyModel());
    const plan = makePlan(graph, limits);
    const measure = () => backend.measure(plan, evenCapacity(4096, dtypeByName("f32")!));
    expect(measure).toThrow(MemoryError);
    expect(measure).toThrow(/a layer of the KV cache needs a buffer of 16777216 bytes/);
    backend.dispose();
  });
});

describeGpu("webgpu, the end", () => {
  test("a lost GPU is an error that says so, in the batch and ever after", async () => {
    const gpu = await openOwnGpu();
    const backend = await loaded(new WebGpuBackend(gpu));
    gpu.device.destroy();
    await expect(async () => await backend.run(batchOf([1]))).rejects.toThrow(WorkerError);
    await expect(async () => await backend.run(batchOf([1]))).rejects.toThrow(/was lost/);
    backend.dispose();
  });

  test("has not ended while something waits for the device", async () => {
    const gpu = await openGpu();
    const backend = new WebGpuBackend(gpu);
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiting = gpu.wait(promise);
    backend.dispose();
    let hasEnded = false;
    const ended = backend.ended().then(() => {
      hasEnded = true;
    });
    await new Promise((done) => setTimeout(done, 50));
    expect(hasEnded).toBe(false);
    resolve();
    await Promise.all([waiting, ended]);
  });

  test("use after dispose throws", async () => {
    const backend = await loaded(await gpuBackend());
    backend.dispose();
    backend.dispose();
    await expect(async () => await backend.run(batchOf([1]))).rejects.toThrow(DisposedError);
  });
});

describeGpu("open() with a backend", () => {
  let file: { path: string; remove(): void };
  beforeAll(async () => {
    file = await tinyFile();
  });
  afterAll(() => file.remove());

  test("webgpu computes, on the engine's thread, what cpu computes", async () => {
    const texts: string[] = [];
    for (const backend of ["cpu", "webgpu"]) {
      const model = await open(file.path, { backend, kvType: "f32" });
      expect(model.info.backend.name).toBe(backend);
      const generation = model.generate("the cat", { temperature: 0, maxTokens: 8 });
      texts.push((await generation.result).text);
      await model.dispose();
    }
    expect(texts[1]).toBe(texts[0]);
  });

  test("an unknown name is refused with those that there are", async () => {
    const opening = open(file.path, { backend: "cuda" });
    await expect(opening).rejects.toThrow(UsageError);
    await expect(opening).rejects.toThrow(
      /backend: got "cuda", expected one of cpu, webgpu, reference/,
    );
  });
});
