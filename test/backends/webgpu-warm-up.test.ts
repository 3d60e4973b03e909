// The warm-up of a GPU: every kernel of the program runs once before the first user comes, and nothing of it is left.

import { describe, expect, test } from "vitest";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import type { Layout } from "../../src/backends/webgpu/buffers.ts";
import type { Program } from "../../src/backends/webgpu/program.ts";
import { type WarmUpParts, warmUp } from "../../src/backends/webgpu/warm-up.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { Batch } from "../../src/graph/batch.ts";
import { kvGroups } from "../../src/graph/graph.ts";
import { describeGpu, gpuBackend, openGpu } from "../support/gpu.ts";
import { greedyTokens, type TinyOptions, tinyEngine, tinyPrompt } from "../support/tiny-engine.ts";

async function warmBackend(): Promise<WebGpuBackend> {
  return new WebGpuBackend(await openGpu(), { warmUpMs: Infinity });
}

/** The names of pipelines that are set from now on. */
function watchPipelines(device: GPUDevice): Set<string> {
  const names = new Set<string>();
  const createCommandEncoder = device.createCommandEncoder.bind(device);
  device.createCommandEncoder = (...args) => {
    const commands = createCommandEncoder(...args);
    const beginComputePass = commands.beginComputePass.bind(commands);
    commands.beginComputePass = (...of) => {
      const pass = beginComputePass(...of);
      const setPipeline = pass.setPipeline.bind(pass);
      pass.setPipeline = (pipeline) => {
        names.add(pipeline.label);
        return setPipeline(pipeline);
      };
      return pass;
    };
    return commands;
  };
  return names;
}

describeGpu("a warm-up", () => {
  test.each<[string, TinyOptions]>([
    ["of a llama in Q8_0", { weightType: "q8_0" }],
    ["whose cache has other types", { weightType: "q8_0", kvType: "q8_0/q4_0", vocab: 64 }],
    ["with windows", { architecture: "cohere2" }],
    ["with recurrent state", { architecture: "lfm2" }],
    ["with experts", { architecture: "qwen3moe" }],
    [
      "with learned positions, and a context that is shorter than a batch",
      { architecture: "gpt2" },
    ],
  ])("%s leaves no trace", async (_, options) => {
    const prompts = [tinyPrompt(1, 14), tinyPrompt(2, 3)];
    const room = { contextSize: options.architecture === "gpt2" ? 24 : 96, parallel: 2 };
    const texts: number[][][] = [];
    for (const backend of [await gpuBackend(), await warmBackend()]) {
      const engine = await tinyEngine({ ...options, ...room, backend });
      const notes = engine.info.backend.notes.join("\n");
      const isWarm = /warm-up: batches of 1, .*tokens in \d+ ms/.test(notes);
      expect(isWarm).toBe(texts.length === 1);
      const { transfer } = backend;
      for (const [group] of kvGroups(engine.graph).entries()) {
        const block = new Uint8Array(2 ** 20);
        const { kvBlocksHeld } = engine.status();
        for (let i = 0; i < kvBlocksHeld / kvGroups(engine.graph).length; i++) {
          await transfer.readBlock(group, i, block);
          expect(block.every((byte) => byte === 0)).toBe(true);
        }
      }
      if (options.architecture === "lfm2") {
        const slot = new Float32Array(2 ** 16);
        await transfer.readSlot(0, slot);
        expect(slot.every((value) => value === 0)).toBe(true);
      }
      expect(backend.lookahead()).toEqual({ submitted: 0, dropped: 0 });
      expect(engine.status()).toMatchObject({ batches: 0, kvBlocksUsed: 0 });
      const together = prompts.map((tokens) => greedyTokens(engine, tokens, 6));
      texts.push(await Promise.all(together));
      engine.dispose();
    }
    expect(texts[1]).toEqual(texts[0]);
  });

  test("runs every kernel of the program", async () => {
    const gpu = await openGpu();
    const seen = watchPipelines(gpu.device);
    const backend = new WebGpuBackend(gpu, { warmUpMs: Infinity });
    const engine = await tinyEngine({ backend, weightType: "q8_0" });
    const limits = { maxTokens: 32, maxOutputs: 32 };
    const expected = new Set<string>();
    for (let size = 1; size <= limits.maxTokens; size++) {
      for (const outputs of [1, size]) {
        const batch = new Batch(limits);
        const sequence = { blocks: Int32Array.of(0) };
        for (let i = 0; i < size; i++) batch.add(0, i, sequence, i >= size - outputs);
        for (const { name } of backend.kernelsOf(batch, () => true)) expected.add(name);
      }
    }
    expect(expected.size).toBeGreaterThan(8);
    expect([...expected].filter((name) => !seen.has(name))).toEqual([]);
    engine.dispose();
  });

  test("of some layers needs nothing of the others", async () => {
    const prompt = tinyPrompt(4, 9);
    const texts: number[][] = [];
    for (const device of [await gpuBackend(), await warmBackend()]) {
      const backend = new SplitBackend({ host: new ReferenceBackend(), device, layers: 2 });
      const engine = await tinyEngine({ backend, weightType: "q8_0" });
      const isWarm = backend.explain().some((line) => line.includes("warm-up: batches of 1"));
      expect(isWarm).toBe(texts.length === 1);
      texts.push(await greedyTokens(engine, prompt, 6));
      engine.dispose();
    }
    expect(texts[1]).toEqual(texts[0]);
  });

  test("of a model that makes embeddings computes hidden states", async () => {
    const gpu = await openGpu();
    const seen = watchPipelines(gpu.device);
    const backend = new WebGpuBackend(gpu, { warmUpMs: Infinity });
    const engine = await tinyEngine({ backend, architecture: "bert", contextSize: 40 });
    expect(engine.info.backend.notes.join("\n")).toMatch(/warm-up: batches of 1/);
    expect(seen.size).toBeGreaterThan(4);
    engine.dispose();
  });

  test("is not made on a software adapter, and not where it is not wanted", async () => {
    const { facts } = await openGpu();
    if (facts.isSoftware) {
      const engine = await tinyEngine({ backend: await gpuBackend() });
      expect(engine.info.backend.notes.join("\n")).not.toContain("warm-up");
      engine.dispose();
    }
    const engine = await tinyEngine({ backend: await warmBackend(), warmup: false });
    expect(engine.info.backend.notes.join("\n")).not.toContain("warm-up");
    engine.dispose();
  });
});

/** A program with kernels from so many tokens on, and a layout with room for two sequences; `run` computes nothing. */
function parts(least: readonly number[], run: (batch: Batch) => void): WarmUpParts {
  const dispatches = least.map((minRows) => ({ kernel: { minRows } }));
  const program = { parts: [{ dispatches }], best: [], bestOne: [] } as unknown as Program;
  const limits = { maxTokens: 64, maxOutputs: 4 };
  const graph = { nodes: [], states: [], outputs: { logits: {} } };
  const kv = { groups: [{ blocks: 8, held: 2 }], tableLength: 2, slots: 3 };
  const layout = { kv, plan: { graph, limits } } as unknown as Layout;
  return {
    layout,
    program,
    contextSize: 24,
    mostMs: 500,
    onlyLargest: false,
    now: () => 0,
    run: async (batch) => run(batch),
  };
}

describe("batches of a warm-up", () => {
  test("are tokens of many generations, and prompts where no batch has as many outputs", async () => {
    const seen: string[] = [];
    const see = (batch: Batch): void => {
      const { tokenCount, outputCount, outputRows, wholeCount } = batch;
      const sequences = [...new Set(batch.sequences.slice(0, tokenCount))];
      const blocks = sequences.map(({ blocks, slots }) => `${blocks.join("+")}/${slots!.to}`);
      const last = outputRows[outputCount - 1];
      seen.push(`${tokenCount}: ${outputCount} to ${last}, ${wholeCount} whole, ${blocks.join()}`);
    };
    const { sizes } = await warmUp(parts([1, 3, 40, 65], see));
    expect(sizes).toEqual([40, 64, 1, 1, 3, 3, 40, 40]);
    expect(seen.filter((_, i) => i % 2 === 0)).toEqual([
      "40: 1 to 39, 1 whole, 0/0,1/1",
      "1: 1 to 0, 0 whole, 0/0",
      "3: 3 to 2, 0 whole, 0/0,1/1,0/2",
      "40: 1 to 39, 1 whole, 0/0,1/1",
    ]);
  });

  test("only the largest, and the one that its kernels are for from so many tokens on", async () => {
    const { sizes } = await warmUp({ ...parts([1, 3, 40, 65], () => {}), onlyLargest: true });
    expect(sizes).toEqual([40, 64]);
  });

  test("end with the one in which the time is over", async () => {
    let clock = 0;
    const counts: number[] = [];
    const slow = parts([1, 2, 3, 4], ({ tokenCount }) => {
      counts.push(tokenCount);
      clock += 200;
    });
    const { sizes, ms } = await warmUp({ ...slow, now: () => clock });
    expect(counts).toEqual([4, 1, 1]); // the largest batch would take too long
    expect({ sizes, ms }).toEqual({ sizes: counts, ms: 600 });
  });
});
