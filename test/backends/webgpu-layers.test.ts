// A layer of a token as one dispatch: the same bits as in a dispatch for each fused op, where workgroups wait for each other, and where
// they cannot: a GPU that the processor plays runs as many of them at a time as it has threads, at most 32.

import { expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { type LayerDispatch, tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { MAP_READ, usage } from "../../src/backends/webgpu/usage.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { layerArrival } from "../../src/backends/webgpu/wgsl/arrival.ts";
import type { Binding, Grid } from "../../src/backends/webgpu/wgsl/kernel.ts";
import {
  arrivalWords,
  EXCHANGE_HEAD,
  layerKernel,
  type Place,
} from "../../src/backends/webgpu/wgsl/layer.ts";
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

const usualShape = { rows: 4, subgroups: 2, split: 1, ahead: 1 };

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

  static async open(graph: Graph, context: Context, cache = "f16"): Promise<Compared> {
    const { blocks, attentionSize, storageBuffers } = context;
    const gpu = await openGpu({ limits: { storageBuffers } });
    const usual = tuningFor(gpu.facts);
    const tuning = {
      ...{ ...usual, attentionSize, promptAttentionSize: 0 },
      shapeFor: () => usualShape,
    };
    const backend = new WebGpuBackend(gpu, { tuning });
    await backend.prepare(makePlan(graph, limits), evenCapacity(blocks, dtypeByName(cache)!));
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
  async logits(
    layerDispatch: LayerDispatch | undefined,
    shape = usualShape,
  ): Promise<Float32Array[]> {
    await this.backend.retune({ ...this.#tuning, layerDispatch, shapeFor: () => shape });
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

/** What the second kernel of a dispatch gets of words that the first stores: as a record, and their numbers as floats. */
async function exchanged(given: Uint32Array<ArrayBuffer>): Promise<number[]> {
  const { device } = await openGpu();
  const value = { id: 0, name: "value", rows: "tokens", cols: given.length } as const;
  const source = { kind: "value", value } as const;
  const part = (bindings: Binding[], body: string) => ({
    ...{ name: "part", bindings, size: 64, rows: "tokens" as const, body },
    grid: (): Grid => [given.length / 64, 1, 1],
  });
  const first = part(
    [
      { name: "given", type: "u32", source },
      { name: "record", type: "u32", source, writes: true },
      { name: "floats", type: "f32", source, writes: true },
    ],
    `
  let i = group.x * 64u + lane;
  record[i] = given[i];
  floats[i] = f32(i);`,
  );
  const second = part(
    [
      { name: "record", type: "vec4u", source },
      { name: "words", type: "u32", source },
      { name: "floats", type: "f32", source },
      { name: "result", type: "u32", source, writes: true },
    ],
    `
  ${layerArrival.barrier}
  // Another lane's.
  let i = ${given.length - 1}u - (group.x * 64u + lane);
  var four = vec4u();
  var own = 0u;
  var number = 0.0;
  ${layerArrival.loads("four = record[i / 4u]; own = words[i]; number = floats[i];")}
  result[i] = select(0u, own, own == four[i % 4u]);
  result[i + ${given.length}u] = u32(number);`,
  );
  const at = arrivalWords(2);
  const words = given.length;
  const plain = (name: string) => ({ kind: "plain", name }) as const;
  const record = { kind: "exchanged", word: at, words } as const;
  const floats = { kind: "exchanged", word: at + words, words } as const;
  const parts = [
    {
      spec: first,
      after: 0,
      places: new Map<string, Place>([
        ["given", plain("bound1")],
        ["record", record],
        ["floats", floats],
      ]),
    },
    {
      spec: second,
      after: 1,
      places: new Map<string, Place>([
        ["record", record],
        ["words", record],
        ["floats", floats],
        ["result", plain("bound2")],
      ]),
    },
  ];
  const bindings: Binding[] = [
    { name: "exchange", type: "atomic<u32>", source: { kind: "exchange" }, writes: true },
    { name: "bound1", type: "u32", source },
    { name: "bound2", type: "u32", source, writes: true },
  ];
  const regionWords = at + 2 * words;
  const { code } = layerKernel(parts, bindings, { groups: 1, polls: 1000, regionWords });
  const all = usage.storage | usage.copySource | usage.copyTarget;
  const buffer = (size: number) => device.createBuffer({ size, usage: all });
  const [exchange, input, result] = [
    buffer((EXCHANGE_HEAD + 2 * regionWords) * 4),
    buffer(words * 4),
    buffer(words * 8),
  ];
  device.queue.writeBuffer(input, 0, given);
  const pipeline = device.createComputePipeline({
    layout: "auto",
    compute: { module: device.createShaderModule({ code }), entryPoint: "main" },
  });
  const layout = pipeline.getBindGroupLayout(0);
  const entries = [exchange, input, result].map((buffer, binding) => {
    return { binding, resource: { buffer } };
  });
  const commands = device.createCommandEncoder();
  const pass = commands.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, device.createBindGroup({ layout, entries }));
  pass.dispatchWorkgroups(1);
  pass.end();
  const read = device.createBuffer({
    size: words * 8,
    usage: usage.mapRead | usage.copyTarget,
  });
  commands.copyBufferToBuffer(result, 0, read, 0, words * 8);
  device.queue.submit([commands.finish()]);
  await read.mapAsync(MAP_READ);
  return [...new Uint32Array(read.getMappedRange())];
}

describeGpu("webgpu, a layer in one dispatch", () => {
  test("records and floats arrive with all of their bits", async () => {
    const count = 256;
    const random = new Random(5);
    // Quants are -127 to 127.
    const byte = () => (random.below(255) - 127) & 255;
    const given = Uint32Array.from({ length: count }, () => {
      return byte() + byte() * 2 ** 8 + byte() * 2 ** 16 + byte() * 2 ** 24;
    });
    given.set([0, 0xffffffff, 0x81818181, 0x7f7f7f7f, 0x7f800001, 0x80000000, 1, 0x80808081]);
    expect(await exchanged(given)).toEqual([...given, ...given.map((_, i) => i)]);
  });

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

  test("has them where a lane goes through several chunks of a row", async () => {
    const compared = await Compared.open(llamaGraph("q8_0", 1, 4), short);
    const apart = await compared.logits(undefined);
    expect(await compared.logits({ groups: 1, polls: 2 ** 20 })).toEqual(apart);
    expect(compared.layers()).not.toEqual([]);
    compared.backend.dispose();
  }, 900_000);

  test("a token has the same bits in workgroups of any size", async () => {
    const compared = await Compared.open(llamaGraph("q4_0", 1, 8), short);
    const usual = await compared.logits(undefined);
    for (const subgroups of [4, 8]) {
      expect(await compared.logits(undefined, { ...usualShape, subgroups })).toEqual(usual);
    }
    compared.backend.dispose();
  }, 900_000);

  // Between kernels of Q4_0 attention and gate are records. With 128 lanes a workgroup has twice as many as its kernels, and two heads; these are
  // apart while the context is one part. Its last token is the first with two.
  test.each([
    { type: "f16", lanes: undefined, before: 262, cache: "f16" },
    { type: "q4_0", lanes: 128, before: 262, cache: "f16" },
    { type: "q4_0", lanes: 128, before: 254, cache: "f16" },
    { type: "q4_0", lanes: 128, before: 3, cache: "f16" },
    { type: "q4_0", lanes: 128, before: 20, cache: "q8_0" },
  ])(
    "merges the parts of a context: $type, $lanes lanes, after $before tokens in $cache",
    async ({ type, lanes, before, cache }) => {
      // Rows of a cache in Q8_0 are 128 values at least.
      const graph = llamaGraph(type, 1, 1, cache === "q8_0" ? 4 : 2);
      const compared = await Compared.open(graph, { ...long, before }, cache);
      const apart = await compared.logits(undefined);
      const alone = await compared.logits({ groups: 1, lanes, polls: 2 ** 20 });
      const names = compared.kernels().filter((name) => name.includes("attention-roped in parts"));
      expect(names).toEqual([expect.stringMatching(/^layer of \d/)]);
      expect(alone).toEqual(apart);
      // As many as may run at the same time: whether they do or not.
      expect(await compared.logits({ groups: 2, lanes, polls: 2 ** 20 })).toEqual(apart);
      expect(await compared.logits(undefined)).toEqual(apart);
      compared.backend.dispose();
    },
    900_000,
  );
});
