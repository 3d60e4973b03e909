// Half-float scales in row panels, at the ends of their range: subnormal scales, scales of 64 and more (which the
// panels' encoding cannot raise), both in one row, and NaN. Matmuls are compared with the reference, rows with the
// type.

import { expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { Arena } from "../../src/backends/cpu/memory/arena.ts";
import { Memories } from "../../src/backends/cpu/memory/memories.ts";
import { Packer } from "../../src/backends/cpu/memory/repack.ts";
import { makeRowReader } from "../../src/backends/cpu/memory/table-rows.ts";
import { WeightStore } from "../../src/backends/cpu/memory/weights.ts";
import { backendByName } from "../../src/backends/table.ts";
import { f32ToF16 } from "../../src/base/half.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { OpKind, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import { nativeTargets, wasmTarget } from "../../src/kernels/target.ts";
import { floats, matmulBatch, matmulGraph, uploadSample } from "../../src/tune/matmul-graph.ts";

const [n, k] = [37, 96];
const limits = { maxTokens: 4, maxOutputs: 4 };

/** Scales of three blocks of some rows; all others are ordinary. */
const unusual: Readonly<Record<number, readonly number[]>> = {
  0: [2 ** -24, 2 ** -20, 2 ** -15],
  3: [63.97, 64, -64],
  5: [65504, 2 ** -24, -0.01],
  18: [0, -0, 2 ** -24],
  36: [-65504, -1, 1],
};
const [notANumber, infinite] = [7, 20];

const types = [
  ["q4_0", 1],
  ["q4_1", 2],
  ["q5_0", 1],
  ["q5_1", 2],
  ["q8_0", 1],
  ["iq4_nl", 1],
] as const;

function blocksOf(type: string, halves: number): Uint8Array {
  const dtype = dtypeByName(type)!;
  const bytes = sampleBlocks(dtype, n * k);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const at = (row: number, block: number) => row * bytesFor(dtype, k) + block * dtype.blockBytes;
  for (const [row, scales] of Object.entries(unusual)) {
    scales.forEach((scale, block) => {
      for (let i = 0; i < halves; i++) {
        view.setUint16(at(Number(row), block) + 2 * i, f32ToF16(i === 0 ? scale : -scale), true);
      }
    });
  }
  view.setUint16(at(notANumber, 1), 0x7e00, true);
  view.setUint16(at(infinite, 2) + 2 * (halves - 1), 0x7c00, true);
  return bytes;
}

const reading = (bytes: Uint8Array) => async (target: Uint8Array, at: number) =>
  target.set(bytes.subarray(at, at + target.length));

async function product(backend: Backend, type: string, bytes: Uint8Array, tokens: number) {
  const graph = matmulGraph(dtypeByName(type)!, n, k);
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, floats));
  for (const weight of graph.weights) {
    if (weight.dtype === floats) await uploadSample(backend, weight);
    else await backend.upload(weight, reading(bytes));
  }
  await backend.run(matmulBatch(tokens, limits));
  const rows = new Float32Array(tokens * n);
  for (let t = 0; t < tokens; t++) {
    await backend.read("logits", t, rows.subarray(t * n, (t + 1) * n));
  }
  backend.dispose();
  return rows;
}

test.each(types)("matmuls with %s", async (type, halves) => {
  const bytes = blocksOf(type, halves);
  const options = { level: 3, threads: 1, startThread: undefined } as const;
  for (const tokens of [1, 4]) {
    const expected = await product(
      backendByName("reference")!.create(options),
      type,
      bytes,
      tokens,
    );
    const got = await product(backendByName("cpu")!.create(options), type, bytes, tokens);
    for (let i = 0; i < got.length; i++) {
      const [row, want] = [i % n, expected[i]!];
      const message = `${tokens} tokens, row ${row}: ${got[i]} against ${want}`;
      if (row === notANumber || row === infinite) {
        expect(Number.isFinite(got[i]), message).toBe(false);
        expect(Number.isFinite(want), message).toBe(false);
      } else {
        // Sums of 96 matmuls, added in another order.
        const size = unusual[row] ? Math.max(...unusual[row].map(Math.abs)) : 0.01;
        expect(Math.abs(got[i]! - want), message).toBeLessThan(1e-3 * size);
      }
    }
  }
});

const tileTargets = [wasmTarget(detectWasmFeatures()), ...Object.values(nativeTargets)];
const rowCases = types.flatMap(([type, halves]) =>
  tileTargets.map((target) => [type, target.name, halves, target] as const),
);

test.each(rowCases)("rows of %s out of tiles for %s", async (type, _, halves, target) => {
  const bytes = blocksOf(type, halves);
  const dtype = dtypeByName(type)!;
  const weight: Weight = { name: "w", shape: [n, k], dtype };
  const arena = new Arena({ shared: true, memory64: false, start: 0 });
  const store = new WeightStore(arena, target, 3);
  const program = store.place(new Map([[weight, new Set<OpKind>(["embed", "matmul"])]]), 1);
  arena.commit();
  const packer = new Packer(program, new Memories(arena.views), {}, () => false);
  await store.upload(weight, reading(bytes), packer);
  await packer.flush();
  const read = makeRowReader(store.rowsOf(weight), arena.views);
  const [expected, got] = [new Float32Array(k), new Float32Array(k)];
  for (let row = 0; row < n; row++) {
    dtype.dequantize(bytes, row * bytesFor(dtype, k), expected, 0, k / dtype.blockElems);
    read(row, got, 0);
    expect(got, `row ${row}`).toEqual(expected);
  }
});
