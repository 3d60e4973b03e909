// Activations that F16 cannot hold, beside F16 weights, on the GPU: the logits are not finite at first, then the tokens are
// computed again by kernels that leave such rows as they are. Exact kernels have the CPU's bits, and it is said once.
// (widened.test.ts has the CPU.)

import { expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { type Model, type OpenOptions, open } from "../../src/index.ts";
import { memorySource } from "../formats/support.ts";
import { changedModel } from "../support/changed-model.ts";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { Random } from "../support/random.ts";
import { tinyGguf } from "../support/tiny-file.ts";

const f32 = dtypeByName("f32")!;
const f16 = dtypeByName("f16")!;
const [n, k, vocab] = [32, 64, 20];
const limits = { maxTokens: vocab, maxOutputs: vocab };

/** A dense matmul, and one of two experts per token whose input has a part for each. */
function graphs(): { dense: Graph; experts: Graph } {
  const table = { name: "table", shape: [vocab, k], dtype: f32 };
  const dense = new GraphBuilder();
  const x = dense.embed(table, "x"); // [tokens, k]
  const logits = dense.matmul(x, { name: "w", shape: [n, k], dtype: f16 }, "y"); // [tokens, n]
  const g = new GraphBuilder();
  const input = g.embed(table, "x"); // [tokens, k]
  const scores = g.matmul(input, { name: "router", shape: [2, k], dtype: f32 }, "scores");
  const routing = { used: 2, gating: "softmax", normalise: true, scale: 1 } as const;
  const routes = g.route(scores, routing, "routes"); // [tokens, 4]
  const up = { name: "up", shape: [2, k, k], dtype: f16 };
  const inner = g.matmulId(input, routes, up, "inner"); // [tokens, 2 * k]
  const down = { name: "down", shape: [2, n, k], dtype: f16 };
  const out = g.matmulId(inner, routes, down, "out"); // [tokens, 2 * n]
  return {
    dense: dense.finish({ logits }),
    experts: g.finish({ logits: g.combine(out, routes, "sum") }),
  };
}

async function load(backend: Backend, graph: Graph): Promise<void> {
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, f32));
  for (const { name, shape, dtype } of graph.weights) {
    const random = new Random(name.length);
    const values = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => {
      // Some rows leave the range, and the results of the second expert do.
      const isLarge = name === "table" ? i === 3 * k + 5 || i === 17 * k : false;
      return random.normal() * (isLarge ? 1e6 : name === "up" && i >= k * k ? 8000 : 1);
    });
    const bytes = new Uint8Array(bytesFor(dtype, values.length));
    dtype.quantize!(values, 0, bytes, 0, values.length);
    await backend.upload({ name, shape, dtype }, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
}

async function results(backend: Backend, tokens: readonly number[]): Promise<Float32Array[]> {
  const batch = new Batch(limits);
  for (const token of tokens) batch.add(token, 0, { blocks: new Int32Array(1) }, true);
  await backend.run(batch);
  const all = tokens.map(() => new Float32Array(n));
  for (const [row, target] of all.entries()) await backend.read("logits", row, target);
  return all;
}

function expectNear(got: readonly Float32Array[], want: readonly Float32Array[]): void {
  for (const [row, values] of want.entries()) {
    const size = Math.max(...values.map(Math.abs));
    for (const [i, value] of values.entries()) {
      expect(Math.abs(got[row]![i]! - value), `row ${row}`).toBeLessThan(1e-5 * size);
    }
  }
}

/** The tiny model in F16, with a norm whose results F16 cannot hold. */
async function overflowing(): Promise<File> {
  const bytes = Uint8Array.from(await tinyGguf({ weightType: "f16" }));
  const file = await openModelFile(memorySource({ "tiny.gguf": bytes }));
  const { offset, byteLength } = file.tensors.get("blk.1.ffn_norm.weight")!;
  bytes.set(new Uint8Array(new Float32Array(byteLength / 4).fill(1e6).buffer), offset);
  return new File([bytes], "tiny.gguf");
}

describeGpu("the GPU", () => {
  const some = [1, 3, 5];
  const all = Array.from({ length: vocab }, (_, token) => token);

  test.each(["dense", "experts"] as const)("%s: NaN, then as the reference", async (which) => {
    const graph = graphs()[which];
    const reference = new ReferenceBackend();
    await load(reference, graph);
    const backend = await gpuBackend();
    await load(backend, graph);
    const [before] = await results(backend, [3]);
    expect(before!.every(Number.isNaN)).toBe(true);
    expect(await backend.widen()).toBe(true);
    expect(await backend.widen()).toBe(false);
    for (const tokens of [[3], [17], [4], some, all]) {
      expectNear(await results(backend, tokens), await results(reference, tokens));
    }
    backend.dispose();
  });

  test("a text goes on with the CPU's bits, where kernels are exact, and it is said once", async () => {
    const file = await overflowing();
    const logits = async (options: OpenOptions) => {
      const said: string[] = [];
      const onWarning = (warning: string) => said.push(warning);
      await using model = await open(file, { threads: 1, kvType: "f32", onWarning, ...options });
      const { text } = await model.generate("the cat", { maxTokens: 6, temperature: 0 }).result;
      const result = await model.logits("the cat sat", { top: 5, greedy: 2 });
      expect(said).toHaveLength(1);
      expect(said[0]).toMatch(
        /^"blk\.1\.ffn_norm" reaches .* stays f32 where it leaves the range$/,
      );
      expect(model.info.warnings).toEqual(said);
      return { text, result };
    };
    // The last layer and the output are on the GPU.
    expect(await logits({ gpuLayers: 2, exact: true })).toEqual(await logits({}));
  });

  test("an embedding is computed again, too", async () => {
    const file = await overflowing();
    const vectors = async (options: OpenOptions) => {
      const said: string[] = [];
      const onWarning = (warning: string) => said.push(warning);
      await using model = await open(file, { threads: 1, kvType: "f32", onWarning, ...options });
      const found = await model.embed(["the cat sat", "cat", "the"]);
      expect(said).toHaveLength(1);
      return found;
    };
    expect(await vectors({ gpuLayers: 2, exact: true })).toEqual(await vectors({}));
  });
});

describeGpu("keys and values that the KV cache cannot hold, on the GPU", () => {
  test.each(["f16", "q8_0", "q4_1", "iq4_nl"] as const)("%s goes on with F32", async (kvType) => {
    const file = await changedModel({ weightType: "f32" }, "blk.1.attn_norm.weight", (values) => {
      values.fill(1e9);
    });
    const said: string[] = [];
    const onWarning = (warning: string) => said.push(warning);
    const options = { threads: 1, gpuLayers: "all", onWarning } as const;
    const tokensOf = async (model: Model) =>
      (await model.generate("the cat", { maxTokens: 6, temperature: 0, ignoreEos: true }).result)
        .tokenIds;
    await using wide = await open(file, { ...options, kvType: "f32" });
    await using model = await open(file, { ...options, kvType });
    const wanted = await tokensOf(wide);
    expect(said).toEqual([]);
    expect(await tokensOf(model)).toEqual(wanted);
    expect(model.info.kvType).toBe("f32");
    expect(said).toHaveLength(1);
    expect(said[0]).toMatch(/KV cache of .* can hold: "blk\.1.* f32 instead of /);
  });
});
