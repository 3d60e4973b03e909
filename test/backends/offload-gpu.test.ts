// Op offload: layers on the processor whose prompts the GPU computes, with matrices that come for each batch. The text is the
// processor's with every length of a prompt around the crossover, alone and beside others, after an abort, and for layers of every kind.

import { expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { SwitchBackend, type SwitchOptions } from "../../src/backends/switch/switch.ts";
import type { GpuDeviceOptions } from "../../src/backends/webgpu/device.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import { open } from "../../src/index.ts";
import { someOf } from "../support/exhaustive.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { describeShared } from "../support/shared.ts";
import {
  bytesOfWeight,
  greedyTokens,
  type TinyModel,
  tinyEngine,
  tinyModel,
  tinyPrompt,
} from "../support/tiny-engine.ts";

const FEWEST = 40;
const cpu = () => new CpuBackend({ level: 3, threads: 1, startThread: undefined });

interface Made {
  readonly backend: SplitBackend;
  readonly switched: SwitchBackend;
  /** Matrices that were read so far. */
  reads(): number;
}

async function offloaded(
  { bytes }: TinyModel,
  layers: number,
  {
    limits,
    helps = "if it can",
  }: { limits?: GpuDeviceOptions["limits"]; helps?: SwitchOptions["helps"] } = {},
): Promise<Made> {
  let reads = 0;
  const stream = {
    ...{ open: () => {}, check: () => {}, close: () => {} },
    async read(weight: Parameters<typeof bytesOfWeight>[0], target: Uint8Array, at: number) {
      reads++;
      if (reads % 5 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
      target.set(bytesOfWeight(weight, bytes).subarray(at, at + target.length));
    },
  };
  const gpu = async (own = {}) => {
    const backend = new WebGpuBackend(await openGpu(limits && { limits }), own);
    return Object.assign(backend, { batchTokens: 512 }); // as of a real GPU
  };
  const choice = { prompt: 1, generation: 0, fewest: FEWEST } as const;
  const switched = new SwitchBackend({ host: cpu(), device: await gpu({ stream }), choice, helps });
  const backend = new SplitBackend({ host: switched, device: await gpu(), layers });
  return { backend, switched, reads: () => reads };
}

const options = { contextSize: 1024, cacheTokens: 4096, parallel: 4 };

async function expectedTexts(model: TinyModel, prompts: readonly number[][], count: number) {
  const engine = await tinyEngine({ model, backend: cpu(), ...options, contextSize: 512 });
  const texts: number[][] = [];
  for (const tokens of prompts) texts.push(await greedyTokens(engine, tokens, count));
  engine.dispose();
  return texts;
}

describeGpu("op offload", () => {
  test("prompts around the crossover, and of a whole batch", async () => {
    const model = tinyModel({ layers: 4 });
    const prompts = [FEWEST - 1, FEWEST, FEWEST + 1, 500].map((n, i) => tinyPrompt(i + 1, n));
    const expected = await expectedTexts(model, prompts, 4);
    const { backend, reads } = await offloaded(model, 3);
    const engine = await tinyEngine({ model, backend, ...options });
    for (const [i, tokens] of prompts.entries()) {
      const before = reads();
      expect(await greedyTokens(engine, tokens, 4)).toEqual(expected[i]);
      // Each matrix of two layers once, and the rows of the tokens; generated tokens read nothing.
      expect(reads() - before).toBe(tokens.length < FEWEST ? 0 : 2 * 7 + tokens.length);
    }
    expect(engine.info.backend.name).toBe("cpu+webgpu");
    expect(engine.info.backend.placement.map(({ backend: name }) => name)).toEqual([
      "cpu",
      "webgpu",
    ]);
    engine.dispose();
  });

  test("several at once, prompts beside generated tokens, and a second turn", async () => {
    const model = tinyModel({ layers: 4, weightType: "q8_0" });
    const prompts = [20, 90, 45, 200].map((n, i) => tinyPrompt(i + 11, n));
    const expected = await expectedTexts(model, prompts, 12);
    const { backend, switched } = await offloaded(model, 3);
    const engine = await tinyEngine({ model, backend, ...options, promptChunk: 64 });
    for (let round = 0; round < 2; round++) {
      expect(await Promise.all(prompts.map((tokens) => greedyTokens(engine, tokens, 12)))).toEqual(
        expected,
      );
    }
    const copied = switched.copiedBlocks;
    expect(copied).toBeGreaterThan(0);
    // What was generated on the processor is read by the GPU, with the next message.
    const next = [...prompts[1]!, ...expected[1]!, ...tinyPrompt(30, 60)];
    const [text] = await expectedTexts(model, [next], 4);
    expect(await greedyTokens(engine, next, 4)).toEqual(text);
    expect(switched.copiedBlocks).toBeGreaterThan(copied);
    engine.dispose();
  });

  test("an abort in the middle of a prompt, and the same prompt again", async () => {
    const model = tinyModel({ layers: 4 });
    const tokens = tinyPrompt(5, 480);
    const [expected] = await expectedTexts(model, [tokens], 4);
    const { backend, reads } = await offloaded(model, 3);
    const engine = await tinyEngine({ model, backend, ...options });
    const control: RunControl = {
      get aborted() {
        return reads() > 490; // behind the rows of the tokens, among the matrices
      },
      yieldThread: () => new Promise<void>((resolve) => setImmediate(resolve)),
      now: () => 0,
    };
    const sampling = { temperature: 0, maxTokens: 4 };
    const { tokenIds, stopReason } = await generate(
      engine,
      { tokens, options: sampling },
      control,
      () => {},
    );
    expect({ tokenIds, stopReason }).toEqual({ tokenIds: [], stopReason: "aborted" });
    expect(await greedyTokens(engine, tokens, 4)).toEqual(expected);
    engine.dispose();
  });

  const archs = ["gemma2", "qwen3moe", "mamba2", "jamba", "rwkv7", "gpt2", "gemma3n"];
  test.each(someOf("architectures", archs, ["qwen3moe", "jamba"]))("%s", async (architecture) => {
    const model = tinyModel({ architecture });
    const prompts = [FEWEST - 1, 70].map((n, i) => tinyPrompt(i + 1, n));
    const expected = await expectedTexts(model, prompts, 4);
    const { backend, reads } = await offloaded(model, 2);
    const engine = await tinyEngine({ model, backend, ...options, contextSize: 512 });
    for (const [i, tokens] of prompts.entries()) {
      expect(await greedyTokens(engine, tokens, 4)).toEqual(expected[i]);
    }
    expect(reads()).toBeGreaterThan(70);
    engine.dispose();
  });

  test("without memory for it: the processor computes, or an error where it was demanded", async () => {
    const model = tinyModel({ layers: 4 });
    const tokens = tinyPrompt(3, 60);
    const [expected] = await expectedTexts(model, [tokens], 4);
    const limits = { memoryBytes: 20e6 };
    const { backend, reads } = await offloaded(model, 3, { limits });
    const engine = await tinyEngine({ model, backend, ...options });
    expect(await greedyTokens(engine, tokens, 4)).toEqual(expected);
    expect(reads()).toBe(0);
    expect(backend.explain().join("\n")).toMatch(/op offload: no/);
    engine.dispose();
    const demanded = await offloaded(model, 3, { limits, helps: "demanded" });
    await expect(tinyEngine({ model, backend: demanded.backend, ...options })).rejects.toThrow(
      /op offload: the GPU has no memory for it/,
    );
    demanded.backend.dispose();
  });
});

describeShared("op offload of a file", "models", () => {
  describeGpu("stories15M", () => {
    test("the text is the same; a software adapter is used on demand only", async () => {
      const texts: string[] = [];
      for (const opOffload of [true, undefined, false]) {
        await using model = await open("stories15m", {
          ...{ gpuLayers: 4, contextSize: 256, ...(opOffload !== undefined && { opOffload }) },
        });
        const prompt = "Once upon a time there was a little girl who had a red ball. ".repeat(3);
        const { text } = await model.generate(prompt, { temperature: 0, maxTokens: 6 }).result;
        texts.push(text);
        const explained = model.info.backend.notes.join("\n");
        expect(explained).toMatch(
          opOffload ? /op offload: demanded: prompts of 32 tokens/ : /op offload: no: /,
        );
      }
      expect(texts[1]).toBe(texts[0]);
      expect(texts[2]).toBe(texts[0]);
    });
  });
});
