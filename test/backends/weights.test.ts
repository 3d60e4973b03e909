// Weights in row panels: a row comes out bit for bit as the type's own dequantize() gives it from the file, for every
// packed type and every target; and a table that is both embedding and output is in memory once.

import { expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { Arena } from "../../src/backends/cpu/memory/arena.ts";
import { Memories } from "../../src/backends/cpu/memory/memories.ts";
import { Packer } from "../../src/backends/cpu/memory/repack.ts";
import { makeRowReader } from "../../src/backends/cpu/memory/table-rows.ts";
import { WeightStore } from "../../src/backends/cpu/memory/weights.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { weightBytes } from "../../src/graph/cost.ts";
import type { OpKind, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { packedTypes } from "../../src/kernels/ops/packed/packings.ts";
import { nativeTargets, wasmTarget } from "../../src/kernels/target.ts";
import { buildModel } from "../../src/models/build.ts";
import { tinyModel } from "../support/tiny-engine.ts";

const targets = [
  ...(["signed", "unsigned", "i7", "words"] as const).map((dot4) =>
    wasmTarget({ dot4, vectorRegisters: 16 }),
  ),
  ...Object.values(nativeTargets),
];
const cases = [...packedTypes(), "f32", "f16", "bf16"].flatMap((type) =>
  targets.map((target) => [type, target.name, target.dot4, target] as const),
);

test.each(cases)("rows of %s out of tiles for %s, dot4 %s", async (type, _name, _dot4, target) => {
  const [rows, cols] = [37, 512]; // two whole tiles and a part of one
  const dtype = dtypeByName(type)!;
  const weight: Weight = { name: "w", shape: [rows, cols], dtype };
  const bytes = sampleBlocks(dtype, rows * cols);
  const arena = new Arena({ shared: true, memory64: false, start: 0 });
  const store = new WeightStore(arena, target, 3);
  const program = store.place(new Map([[weight, new Set<OpKind>(["embed", "matmul"])]]), 1);
  arena.commit();
  const packer = new Packer(program, new Memories(arena.views), {}, () => false);
  await store.upload(
    weight,
    async (target, at) => target.set(bytes.subarray(at, at + target.length)),
    packer,
  );
  await packer.flush();

  expect(store.get(weight).raw).toBeUndefined();
  const read = makeRowReader(store.rowsOf(weight), arena.views);
  const expected = new Float32Array(cols);
  const got = new Float32Array(cols + 2);
  for (let row = 0; row < rows; row++) {
    dtype.dequantize(bytes, row * bytesFor(dtype, cols), expected, 0, cols / dtype.blockElems);
    read(row, got, 1);
    expect(got.subarray(1, cols + 1), `row ${row}`).toEqual(expected);
  }
});

test("a matrix larger than a piece is read in pieces and packed in order", async () => {
  const [rows, cols] = [3000, 1024];
  const dtype = dtypeByName("f32")!;
  const weight: Weight = { name: "w", shape: [rows, cols], dtype };
  const arena = new Arena({ shared: true, memory64: false, start: 0 });
  const store = new WeightStore(arena, targets[0]!, 3);
  const program = store.place(new Map([[weight, new Set<OpKind>(["matmul"])]]), 1);
  arena.commit();
  const reads: number[] = [];
  const read = async (target: Uint8Array, at: number) => {
    reads.push(at);
    const floats = new Float32Array(target.buffer, target.byteOffset, target.length / 4);
    for (let i = 0; i < floats.length; i++) floats[i] = at / 4 + i;
  };
  const packer = new Packer(program, new Memories(arena.views), {}, () => false);
  await store.upload(weight, read, packer);
  await packer.flush();
  expect(reads.length).toBeGreaterThan(2);
  const readRow = makeRowReader(store.rowsOf(weight), arena.views);
  const row = new Float32Array(cols);
  for (let r = 0; r < rows; r += 7) {
    readRow(r, row, 0);
    expect([row[0], row[cols - 1]]).toEqual([r * cols, r * cols + cols - 1]);
  }
});

test("a read that fails fails the upload", async () => {
  const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
  const { graph } = buildModel(tinyModel());
  const f32 = dtypeByName("f32")!;
  backend.prepare(makePlan(graph, { maxTokens: 4, maxOutputs: 4 }), evenCapacity(1, f32));
  const failing = backend.upload(graph.weights[0]!, async () => {
    throw new RangeError("no such bytes");
  });
  await expect(failing).rejects.toThrow("no such bytes");
  backend.dispose();
});

test("a tied table of embeddings is in memory once", () => {
  const model = tinyModel({ weightType: "f16" });
  const { graph } = buildModel(model); // tinyModel leaves the output matrix out
  const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
  const kv = evenCapacity(1, dtypeByName("f32")!);
  const need = backend.measure(makePlan(graph, { maxTokens: 4, maxOutputs: 4 }), kv);
  const inFile = graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
  const padding = 64 * graph.weights.length;
  expect(need.weightBytes).toBeLessThanOrEqual(inFile + padding);
});
