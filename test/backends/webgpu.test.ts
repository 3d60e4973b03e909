// The WebGPU backend against the reference, op by op and type by type: rows of tables, products of few and of many tokens.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { layOutWeights, stackable } from "../../src/backends/webgpu/weight-layout.ts";
import { laneProductOf } from "../../src/backends/webgpu/wgsl/product.ts";
import type { DType } from "../../src/dtypes/dtype.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { allDTypes, dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph, Value, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { Step } from "../../src/graph/step.ts";
import { someOf } from "../support/exhaustive.ts";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { Random } from "../support/random.ts";

const vocab = 37;
const outputs = 35;
const f32 = dtypeByName("f32")!;

const weight = (name: string, shape: number[], dtype: DType = f32): Weight => ({
  name,
  shape,
  dtype,
});

type Seen = Map<string, Float32Array>;

/** The values of each node, by name, after steps of so many tokens, of which every third is wanted. */
async function run(
  backend: Backend,
  graph: Graph,
  sizes: readonly number[],
  bytesOf: (weight: Weight) => Uint8Array,
): Promise<Seen[]> {
  const limits = { maxTokens: 40, maxOutputs: 40 };
  await backend.prepare(makePlan(graph, limits), { blocks: 2, dtype: f32 });
  for (const each of graph.weights) {
    const bytes = bytesOf(each);
    await backend.upload(each, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
  const step = new Step(limits);
  const table = { blocks: Int32Array.of(1, 0) };
  const results: Seen[] = [];
  for (const tokens of sizes) {
    step.clear();
    for (let i = 0; i < tokens; i++) step.add((i * 11 + 5) % vocab, i, table, i % 3 === 0);
    const seen: Seen = new Map();
    await backend.run(step, { tap: (value, data) => void seen.set(value.name, data.slice()) });
    results.push(seen);
  }
  backend.dispose();
  return results;
}

function floats({ name, shape }: Weight): Uint8Array {
  const count = shape.reduce((a, b) => a * b);
  const random = new Random(name.length * 100 + count);
  const values = Float32Array.from({ length: count }, (_, i) =>
    shape.length === 1 ? 1 + 0.1 * random.normal() : random.normal() * (i % 11 === 0 ? 20 : 2),
  );
  return new Uint8Array(values.buffer);
}

/** To `tolerance` of the largest value of the row. */
function expectClose(
  name: string,
  got: Float32Array,
  want: Float32Array,
  cols: number,
  tolerance: number,
): void {
  expect(got.length, name).toBe(want.length);
  for (let row = 0; row < want.length; row += cols) {
    const size = want.subarray(row, row + cols).reduce((a, v) => Math.max(a, Math.abs(v)), 0);
    for (let i = row; i < row + cols; i++) {
      const error = Math.abs(got[i]! - want[i]!) / size;
      expect(error, `${name}[${i}] is ${got[i]}, expected ${want[i]}`).toBeLessThan(tolerance);
    }
  }
}

/** One of everything that no architecture uses yet, each on the embeddings. */
function everyOp(cols: number): Graph {
  const g = new GraphBuilder();
  const x = g.embed(weight("table", [vocab, cols]), "embed");
  const [w, b] = [weight("norm", [cols]), weight("norm_bias", [cols])];
  const parts: Value[] = [
    g.rmsNorm(x, w, 1e-5, "rms_norm"),
    g.layerNorm(x, w, undefined, 1e-5, "layer_norm"),
    g.layerNorm(x, w, b, 1e-5, "layer_norm_bias"),
    g.activate(x, "silu", "silu"),
    g.activate(x, "gelu", "gelu"),
    g.activate(x, "relu", "relu"),
    g.gate(x, x, "silu", "gate"),
    g.scale(x, 0.37, "scale"),
    g.softcap(x, 30, "softcap"),
    g.softmax(x, "softmax"),
    g.mul(x, x, "mul"),
  ];
  const sum = parts.reduce((a, part, i) => g.add(a, part, `sum ${i}`));
  const selected = g.select(sum, "select");
  return g.finish({ logits: g.softcap(selected, 5, "softcap of outputs") });
}

test("which types lanes multiply 16 bytes at a time, and when", () => {
  const tuned = (cols: number, bytes: number) =>
    allDTypes()
      .filter((dtype) => laneProductOf(weight("matrix", [outputs, cols], dtype), bytes))
      .map(({ name }) => name)
      .sort();
  expect(tuned(512, 16384)).toEqual(["f16", "q4_0", "q4_1", "q4_k", "q6_k", "q8_0"]);
  expect(tuned(96, 16384)).toEqual(["f16", "q4_0", "q4_1", "q8_0"]);
  expect(tuned(45, 16384)).toEqual([]);
  // Activations are staged in workgroup memory, where they must fit.
  expect(tuned(11264, 16384)).toEqual(["q4_0", "q4_1", "q4_k", "q6_k", "q8_0"]);
  expect(tuned(65536, 16384)).toEqual([]);
});

test("where weights lie: planes of levels and scales, stacked without a gap, or cut between rows", () => {
  const limits = { maxBufferBytes: 2 ** 20, maxBindingBytes: 2 ** 20 };
  const q4 = dtypeByName("q4_0")!;
  const [q, k] = [weight("q", [64, 256], q4), weight("k", [32, 256], q4)];
  const norm = weight("norm", [5]);
  expect(stackable([q, k], limits)).toBe(true);
  // 8 blocks a row: 128 bytes of levels, 16 of scales.
  const { parts, stacks, buffers } = layOutWeights([q, norm, k], limits, [[q, k]]);
  const part = { buffer: 0, rowStart: 0 };
  expect(stacks.get("q")).toEqual({
    ...part,
    rows: 96,
    wide: { offset: 0, bytes: 96 * 128 },
    narrow: { offset: 96 * 128, bytes: 96 * 16 },
  });
  expect(parts.get("k")).toEqual([
    {
      ...part,
      rows: 32,
      wide: { offset: 64 * 128, bytes: 32 * 128 },
      narrow: { offset: 96 * 128 + 64 * 16, bytes: 32 * 16 },
    },
  ]);
  expect(parts.get("norm")![0]).toMatchObject({ wide: { offset: 96 * 144, bytes: 20 } });
  expect(buffers).toEqual([96 * 144 + 20]);
  // Each must also be bound by itself, at a multiple of 256 bytes; and all together must fit.
  expect(stackable([q, weight("v", [31, 256], q4)], limits)).toBe(false);
  expect(stackable([q, weight("v", [32, 256], dtypeByName("q8_0")!)], limits)).toBe(false);
  expect(stackable([q, k], { ...limits, maxBindingBytes: 96 * 144 - 4 })).toBe(false);
  const cut = layOutWeights([q], { ...limits, maxBindingBytes: 40 * 144 }).parts.get("q")!;
  expect(cut.map(({ rowStart, rows }) => [rowStart, rows])).toEqual([
    [0, 40],
    [40, 24],
  ]);
});

describeGpu("webgpu, every op", () => {
  test.each([64, 45, 300])("%i columns", async (cols) => {
    const graph = everyOp(cols);
    const [expected] = await run(new ReferenceBackend(), graph, [7], floats);
    const [got] = await run(await gpuBackend(), graph, [7], floats);
    expect([...got!.keys()]).toEqual([...expected!.keys()]);
    for (const [name, values] of expected!) expectClose(name, got!.get(name)!, values, cols, 3e-6);
  });
});

describeGpu("webgpu, rows and products", () => {
  // One of each kind: floats, blocks of 32 and of 256, with minimums, grids, ternary.
  const types = someOf(
    "types",
    allDTypes().map((dtype) => dtype.name),
    ["f32", "bf16", "q4_0", "q5_1", "q4_k", "q6_k", "iq2_xxs", "iq4_xs", "tq1_0", "mxfp4"],
  );

  /** Rows of a table of this type, and a product with a matrix of it: [tokens, outputs]. */
  const rowsAndProduct = (dtype: DType, cols: number): Graph => {
    const g = new GraphBuilder();
    g.embed(weight("table", [vocab, cols], dtype), "rows");
    const x = g.embed(weight("inputs", [vocab, cols]), "x");
    const matrix = weight("matrix", [outputs, cols], dtype);
    const product = g.matmul(x, matrix, "product", weight("bias", [outputs]));
    return g.finish({ logits: g.select(product, "select") });
  };

  test.each(types)("%s", async (type) => {
    const dtype = dtypeByName(type)!;
    const cols = dtype.blockElems === 1 ? 45 : 2 * Math.max(48, dtype.blockElems);
    const graph = rowsAndProduct(dtype, cols);
    const packed = sampleBlocks(dtype, vocab * cols);
    const bytesOf = (each: Weight) =>
      each.dtype === dtype && dtype !== f32 ? packed : floats(each);
    // 3 tokens are computed one by one, 33 in tiles of which the last is nearly empty.
    const sizes = [3, 33];
    const expected = await run(new ReferenceBackend(), graph, sizes, bytesOf);
    const got = await run(await gpuBackend(), graph, sizes, bytesOf);
    got.forEach((seen, i) => {
      const want = expected[i]!;
      expectClose("rows", seen.get("rows")!, want.get("rows")!, cols, 2e-7);
      // Activations are rounded on both sides; where a device divides less exactly, one may fall to its other neighbour.
      expectClose("product", seen.get("product")!, want.get("product")!, outputs, 5e-3);
      const off = distances(seen.get("product")!, want.get("product")!, outputs);
      const exact = off.filter((distance) => distance < 2e-6);
      expect(exact.length, `tokens that agree: ${off}`).toBeGreaterThan(0.8 * off.length);
    });
  });
});

/** Of each row: the largest difference, relative to its largest value. */
function distances(got: Float32Array, want: Float32Array, cols: number): number[] {
  return Array.from({ length: want.length / cols }, (_, row) => {
    let [most, size] = [0, 0];
    for (let i = row * cols; i < (row + 1) * cols; i++) {
      most = Math.max(most, Math.abs(got[i]! - want[i]!));
      size = Math.max(size, Math.abs(want[i]!));
    }
    return most / size;
  });
}
