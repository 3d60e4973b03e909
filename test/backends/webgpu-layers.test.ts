// A layer of a token as one dispatch: the same bits as in a dispatch for each fused op, where workgroups wait for each other, and where
// they cannot: a GPU that the processor plays runs as many of them at a time as it has threads, at most 32.

import { expect, test } from "vitest";
import { evenRoom } from "../../src/backends/backend.ts";
import { type LayerDispatch, tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import type { Graph, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { llamaGraph, llamaVocab as vocab } from "../support/llama-graph.ts";
import { Random } from "../support/random.ts";

const f32 = dtypeByName("f32")!;
const limits = { maxTokens: 1, maxOutputs: 1 };
const TOKENS = 4;

function bytesOf({ name, shape, dtype }: Weight): Uint8Array {
  const count = shape.reduce((a, b) => a * b);
  if (dtype !== f32) return sampleBlocks(dtype, count);
  const random = new Random(name.length * 100 + count);
  const center = shape.length === 1 ? 1 : 0;
  return new Uint8Array(
    Float32Array.from({ length: count }, () => center + random.normal()).buffer,
  );
}

interface Context {
  readonly blocks: number;
  readonly before: number;
  readonly attentionSize: number;
  /** With more bindings more kernels are merged, and a processor takes minutes to compile them. */
  readonly storageBuffers: number;
}

const short: Context = { blocks: 2, before: 1, attentionSize: 0, storageBuffers: 8 };
/** Two parts, of which the second begins at position 256. */
const long: Context = { blocks: 9, before: 262, attentionSize: 64, storageBuffers: 9 };

/** Computes with the same weights in one way after the other; see `logits`. */
class Compared {
  readonly backend: WebGpuBackend;
  readonly #tuning;
  readonly #batch = new Batch(limits);
  readonly #table: { blocks: Int32Array };
  /** Tokens before those that are compared. */
  readonly #before: number;

  private constructor(
    backend: WebGpuBackend,
    tuning: ReturnType<typeof tuningFor>,
    { blocks, before }: Context,
  ) {
    this.backend = backend;
    this.#tuning = tuning;
    this.#table = { blocks: Int32Array.from({ length: blocks }, (_, i) => blocks - 1 - i) };
    this.#before = before;
  }

  static async open(graph: Graph, context: Context): Promise<Compared> {
    const { blocks, attentionSize, storageBuffers } = context;
    const gpu = await openGpu({ limits: { storageBuffers } });
    const usual = tuningFor(gpu.facts);
    const shape = { rows: 2, teams: 2, split: 1, ahead: 1 };
    const tuning = { ...usual, attentionSize, promptAttentionSize: 0, shapeFor: () => shape };
    const backend = new WebGpuBackend(gpu, { tuning });
    await backend.prepare(makePlan(graph, limits), evenRoom(blocks, dtypeByName("f16")!));
    for (const weight of graph.weights) {
      const bytes = bytesOf(weight);
      await backend.upload(weight, async (target, at) => {
        target.set(bytes.subarray(at, at + target.length));
      });
    }
    const compared = new Compared(backend, tuning, context);
    for (let at = 0; at < context.before; at++) await compared.#run(at, 1);
    return compared;
  }

  /** The logits of tokens, one after the other, after those before. */
  async logits(layerDispatch: LayerDispatch | undefined): Promise<Float32Array[]> {
    await this.backend.retune({ ...this.#tuning, layerDispatch });
    const rows: Float32Array[] = [];
    for (let i = 0; i < TOKENS; i++) rows.push(await this.#run(this.#before + i, 1));
    return rows;
  }

  /** Of the last batch. */
  kernels(): string[] {
    return this.backend.kernelsOf(this.#batch, () => true).map(({ name }) => name);
  }

  /** The numbers of kernels in the layer kernels of the last batch. */
  layers(): string[] {
    return this.kernels()
      .map((name) => name.split(":", 1)[0]!)
      .filter((name) => name.startsWith("layer"));
  }

  async #run(from: number, count: number): Promise<Float32Array> {
    this.#batch.clear();
    for (let at = from; at < from + count; at++) {
      this.#batch.add((at * 7 + 3) % vocab, at, this.#table, at === from + count - 1);
    }
    await this.backend.run(this.#batch);
    const row = new Float32Array(vocab);
    await this.backend.read("logits", 0, row);
    return row;
  }
}

describeGpu("webgpu, a layer in one dispatch", () => {
  test("has the bits of a dispatch for each fused op", async () => {
    const compared = await Compared.open(llamaGraph("f16", 1), short);
    const apart = await compared.logits(undefined);
    expect(compared.layers()).toEqual([]);
    expect(new Set(apart.map(String)).size).toBe(TOKENS);
    const polls = 2 ** 20;
    const alone = await compared.logits({ groups: 1, polls });
    expect(compared.layers()).toEqual(["layer of 2", "layer of 3"]);
    expect(alone).toEqual(apart);
    // More workgroups than there are threads: they wait in vain, and every op has its own dispatch again.
    const inVain = await compared.logits({ groups: 100, polls });
    expect(compared.layers()).toEqual([]);
    expect(inVain).toEqual(apart);
    expect(compared.backend.explain().join()).toContain("could not wait for each other");
    // As many as may run at the same time: whether they do or not.
    expect(await compared.logits({ groups: 2, polls })).toEqual(apart);
    compared.backend.dispose();
  }, 900_000);

  test("merges the parts of a context", async () => {
    const compared = await Compared.open(llamaGraph("f16", 1), long);
    const apart = await compared.logits(undefined);
    const alone = await compared.logits({ groups: 1, polls: 2 ** 20 });
    const names = compared.kernels().filter((name) => name.includes("attention-roped in parts"));
    expect(names).toEqual([expect.stringMatching(/^layer of \d/)]);
    expect(alone).toEqual(apart);
    // As many as may run at the same time: whether they do or not.
    expect(await compared.logits({ groups: 2, polls: 2 ** 20 })).toEqual(apart);
    expect(await compared.logits(undefined)).toEqual(apart);
    compared.backend.dispose();
  }, 900_000);
});
