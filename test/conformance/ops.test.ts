// Every op of the graph by itself, also those that no architecture here uses yet: the CPU backend against the reference,
// with kernels where the columns fill vectors and without where they do not; and rows of embedding tables of every type
// and layout, bit for bit.

import { describe, expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import type { DType } from "../../src/dtypes/dtype.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { allDTypes, dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph, Value, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { Step } from "../../src/graph/step.ts";
import { Random } from "../support/random.ts";

const limits = { maxTokens: 7, maxOutputs: 7 };
const vocab = 37;
const f32 = dtypeByName("f32")!;

const weight = (name: string, shape: number[], dtype: DType = f32): Weight => ({
  name,
  shape,
  dtype,
});

/** The values of each node, by name; after a step of seven tokens of which three are wanted. */
async function run(backend: Backend, graph: Graph): Promise<Map<string, Float32Array>> {
  await backend.prepare(makePlan(graph, limits), { blocks: 1, dtype: f32 });
  for (const { name, shape, dtype } of graph.weights) {
    const bytes = bytesOf(name, shape, dtype);
    await backend.upload(
      graph.weights.find((w) => w.name === name)!,
      async (target, at) => void target.set(bytes.subarray(at, at + target.length)),
    );
  }
  const step = new Step(limits);
  const table = { blocks: Int32Array.of(0) };
  [5, 36, 0, 16, 31, 5, 20].forEach((token, i) => {
    step.add(token, i, table, i % 3 === 1 || i === 6);
  });
  const seen = new Map<string, Float32Array>();
  await backend.run(step, { tap: (value, data) => void seen.set(value.name, data.slice()) });
  return seen;
}

/** Vectors: around 1, with a few large values; tables: samples of their type, made larger where they are floats. */
function bytesOf(name: string, shape: readonly number[], dtype: DType): Uint8Array {
  const count = shape.reduce((a, b) => a * b);
  if (dtype !== f32) return sampleBlocks(dtype, count);
  const random = new Random(name.length * 100 + count);
  const values = Float32Array.from({ length: count }, (_, i) =>
    shape.length === 1 ? 1 + 0.1 * random.normal() : random.normal() * (i % 11 === 0 ? 20 : 2),
  );
  return new Uint8Array(values.buffer);
}

/** One of everything that is not covered by an architecture, each on the embeddings. */
function everyOp(cols: number): Graph {
  const g = new GraphBuilder();
  const x = g.embed(weight("table", [vocab, cols]), "embed");
  const [w, b] = [weight("norm", [cols], f32), weight("norm_bias", [cols], f32)];
  const parts: Value[] = [
    g.layerNorm(x, w, undefined, 1e-5, "layer_norm"),
    g.layerNorm(x, w, b, 1e-5, "layer_norm_bias"),
    g.activate(x, "silu", "silu"),
    g.activate(x, "gelu", "gelu"),
    g.activate(x, "relu", "relu"),
    g.scale(x, 0.37, "scale"),
    g.softcap(x, 30, "softcap"),
    g.softmax(x, "softmax"),
    g.mul(x, x, "mul"),
  ];
  const sum = parts.reduce((a, part, i) => g.add(a, part, `sum ${i}`));
  const selected = g.select(sum, "select");
  return g.finish({ logits: g.softcap(selected, 5, "softcap of outputs") });
}

describe.each([64, 45])("every op, %i columns", (cols) => {
  test("as the reference computes it", async () => {
    const graph = everyOp(cols);
    const cpu = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
    const expected = await run(new ReferenceBackend(), graph);
    const got = await run(cpu, graph);
    expect([...got.keys()]).toEqual([...expected.keys()]);
    for (const [name, values] of expected) expectClose(name, got.get(name)!, values, cols);

    // The path that ran is the one that was meant.
    const byReference = cpu.explain().filter((line) => line.includes("reference ("));
    const nodes = graph.nodes.length;
    expect(byReference.length).toBe(cols % 4 === 0 ? 0 : nodes - 1); // embed needs no whole vectors
    cpu.dispose();
  });
});

/** To 2e-6 of the largest value of the row. */
function expectClose(name: string, got: Float32Array, want: Float32Array, cols: number): void {
  expect(got.length, name).toBe(want.length);
  for (let row = 0; row < want.length; row += cols) {
    const size = want.subarray(row, row + cols).reduce((a, v) => Math.max(a, Math.abs(v)), 0);
    for (let i = row; i < row + cols; i++) {
      const error = Math.abs(got[i]! - want[i]!) / size;
      expect(error, `${name}[${i}] is ${got[i]}, expected ${want[i]}`).toBeLessThan(2e-6);
    }
  }
}

describe("embeddings, bit for bit", () => {
  // Of its own: rows as in the file. Tied: the table is the output matrix too, in tiles where its type has them.
  const types = allDTypes().map((dtype) => dtype.name);
  test.each(types)("%s", async (type) => {
    const dtype = dtypeByName(type)!;
    const cols = Math.max(48, dtype.blockElems);
    for (const tied of [false, true]) {
      const g = new GraphBuilder();
      const table = weight("table", [vocab, cols - (cols % dtype.blockElems)], dtype);
      const x = g.embed(table, "embed");
      const selected = g.select(x, "select");
      const graph = g.finish({ logits: tied ? g.matmul(selected, table, "logits") : selected });
      const cpu = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
      const expected = await run(new ReferenceBackend(), graph);
      const got = await run(cpu, graph);
      for (const name of ["embed", "select"]) {
        expect(got.get(name), `${name}, ${tied ? "tied" : "of its own"}`).toEqual(
          expected.get(name),
        );
      }
      cpu.dispose();
    }
  });
});
