// Activations that F16 cannot hold, beside F16 weights: such a row stays float32, as the reference defines, on every opt level
// and target; the rows beside it are rounded as ever, and a row has the same bits alone and among others. The first such row is
// recorded with its names. Values may be as large as float32 allows. What is infinite or NaN before stays so.

import { describe, expect, test } from "vitest";
import { type Backend, evenCapacity, type Widened } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import type { CpuOptions } from "../../src/backends/cpu/cpu-options.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { f16ToF32, f32ToF16 } from "../../src/base/half.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nativeHere } from "../support/native.ts";
import { Random } from "../support/random.ts";

const f32 = dtypeByName("f32")!;
const [n, k, vocab] = [23, 64, 8];
const limits = { maxTokens: 8, maxOutputs: 8 };

/** Rows 3, 6 and 7 leave the range, the last one by far; 65519 rounds to 65504, so row 4 does not. */
const rows = Array.from({ length: vocab }, (_, t) => {
  const random = new Random(t + 1);
  const row = Float32Array.from({ length: k }, () => random.normal());
  if (t === 3) row[7] = -65520;
  if (t === 4) row[7] = 65519;
  if (t === 6) row.set([3e6, -1e5], 20);
  if (t === 7) row.set([1e12, -3e11], 30);
  return row;
});

const random = new Random(99);
const matrix = Float32Array.from({ length: n * k }, () => f16ToF32(f32ToF16(random.normal())));

function graphOf(type: string): Graph {
  const g = new GraphBuilder();
  const x = g.embed({ name: "table", shape: [vocab, k], dtype: f32 }, "x"); // [tokens, k]
  const weight = { name: "w", shape: [n, k], dtype: dtypeByName(type)! };
  return g.finish({ logits: g.matmul(x, weight, "y") }); // [tokens, n]
}

async function load(backend: Backend, type: string, table: readonly Float32Array[] = rows) {
  const graph = graphOf(type);
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, f32));
  for (const weight of graph.weights) {
    const values =
      weight.name === "w" ? matrix : Float32Array.from(table.flatMap((row) => [...row]));
    const bytes = bytesOf(weight, values);
    await backend.upload(weight, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
}

function bytesOf({ dtype }: Weight, values: Float32Array): Uint8Array {
  const bytes = new Uint8Array(bytesFor(dtype, values.length));
  dtype.quantize!(values, 0, bytes, 0, values.length);
  return bytes;
}

async function results(backend: Backend, tokens: readonly number[]): Promise<Float32Array[]> {
  const batch = new Batch(limits);
  for (const token of tokens) batch.add(token, 0, { blocks: new Int32Array(1) }, true);
  await backend.run(batch);
  const all = tokens.map(() => new Float32Array(n));
  for (const [row, target] of all.entries()) await backend.read("logits", row, target);
  return all;
}

const everyToken = rows.map((_, token) => token);
const recorded: Partial<Widened> = { value: "x", weight: "w", dtype: "f16" };

const alone = { threads: 1, startThread: undefined };
const backends: [name: string, make: () => Backend][] = [
  ["reference", () => new ReferenceBackend()],
  ...([1, 2, 3] as const).map((level): [string, () => Backend] => [
    `cpu, opt level ${level}`,
    () => new CpuBackend({ level, ...alone }),
  ]),
  ...nativeHere.map(({ name, native }): [string, () => Backend] => [
    name,
    () => new CpuBackend({ level: 3, native, ...alone }),
  ]),
  [
    "two threads",
    () => {
      const startThread: CpuOptions["startThread"] = () => nodePlatform.startThread("compute");
      return new CpuBackend({ level: 3, threads: 2, startThread });
    },
  ],
];

/** Sums in doubles of what the definition says: the row as F16, or as it is. */
function expected(token: number): number[] {
  const row = rows[token]!;
  const isWide = [3, 6, 7].includes(token);
  const x = isWide ? row : row.map((value) => f16ToF32(f32ToF16(value)));
  return Array.from({ length: n }, (_, o) =>
    x.reduce((sum, value, i) => sum + value * matrix[o * k + i]!, 0),
  );
}

describe.each(backends)("%s", (_, make) => {
  test("a row beyond 65504 stays float32, the others do not, and it is recorded", async () => {
    const backend = make();
    await load(backend, "f16");
    await results(backend, [0, 1, 4]);
    expect(backend.widened!()).toBeUndefined();
    const together = await results(backend, everyToken);
    const first = backend.widened!()!;
    expect(first).toMatchObject(recorded);
    expect([-65520, 3e6, Math.fround(1e12)]).toContain(first.largest);
    for (const token of everyToken) {
      const want = expected(token);
      const size = Math.max(...want.map(Math.abs));
      for (const [o, value] of together[token]!.entries()) {
        expect(Math.abs(value - want[o]!), `token ${token}`).toBeLessThan(2e-6 * size);
      }
    }
    const single = [];
    for (const token of everyToken) single.push((await results(backend, [token]))[0]);
    expect(single).toEqual(together);
    backend.dispose();
  });
});

test("infinities are not recorded, and stay", async () => {
  const table = rows.map((row) => row.slice());
  table[1]![5] = Number.POSITIVE_INFINITY;
  table[2]![5] = Number.NaN;
  for (const make of [backends[0]![1], backends[3]![1]]) {
    const backend = make();
    await load(backend, "f16", table);
    const [infinite, none] = await results(backend, [1, 2]);
    expect(infinite!.every((value) => !Number.isFinite(value))).toBe(true);
    expect(none!.every(Number.isNaN)).toBe(true);
    expect(backend.widened!()).toBeUndefined();
    backend.dispose();
  }
});

test("experts: each slot's row by itself", async () => {
  const g = new GraphBuilder();
  const f16 = dtypeByName("f16")!;
  const [experts, slots] = [2, 2];
  const table = { name: "table", shape: [vocab, k], dtype: f32 };
  const x = g.embed(table, "x"); // [tokens, k]
  const routes = g.route(
    g.matmul(x, { name: "router", shape: [experts, k], dtype: f32 }, "logits"),
    { used: slots, gating: "softmax", normalise: true, scale: 1 },
    "routes",
  ); // [tokens, 2 * slots]
  const up = { name: "up", shape: [experts, k, k], dtype: f16 };
  const inner = g.matmulId(x, routes, up, "inner"); // [tokens, slots * k]
  const down = { name: "down", shape: [experts, k, k], dtype: f16 };
  const out = g.matmulId(inner, routes, down, "out"); // [tokens, slots * k]
  const graph = g.finish({ hidden: g.select(g.combine(out, routes, "combined"), "hidden") });
  const hidden = async (backend: Backend) => {
    await backend.prepare(makePlan(graph, limits), evenCapacity(1, f32));
    for (const weight of graph.weights) {
      const source = new Random(weight.name.length);
      // The second expert's results are large, the first one's are not.
      const values = Float32Array.from(
        { length: weight.shape.reduce((a, b) => a * b, 1) },
        (_, i) => source.normal() * (weight.name === "up" && i >= k * k ? 8000 : 1),
      );
      const bytes = bytesOf(weight, values);
      await backend.upload(weight, async (target, at) => {
        target.set(bytes.subarray(at, at + target.length));
      });
    }
    const batch = new Batch(limits);
    for (const token of everyToken) batch.add(token, 0, { blocks: new Int32Array(1) }, true);
    await backend.run(batch);
    const all = everyToken.map(() => new Float32Array(k));
    for (const [row, target] of all.entries()) await backend.read("hidden", row, target);
    expect(backend.widened!()).toMatchObject({ value: "inner", weight: "down", dtype: "f16" });
    backend.dispose();
    return all;
  };
  const want = await hidden(new ReferenceBackend());
  for (const native of [undefined, ...nativeHere.map((each) => each.native)]) {
    const got = await hidden(new CpuBackend({ level: 3, native, ...alone }));
    for (const [token, row] of got.entries()) {
      const size = Math.max(...want[token]!.map(Math.abs));
      row.forEach((value, i) => {
        expect(Math.abs(value - want[token]![i]!)).toBeLessThan(1e-5 * size);
      });
    }
  }
});
