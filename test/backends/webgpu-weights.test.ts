// How the WebGPU backend packs weights, and which of them lanes multiply 16 bytes at a time.
// test/conformance/webgpu.test.ts compares its results with the reference.

import { expect, test } from "vitest";
import { layOutWeights, stackable } from "../../src/backends/webgpu/weight-layout.ts";
import { laneDotOf } from "../../src/backends/webgpu/wgsl/matmul-gemv.ts";
import type { DType } from "../../src/dtypes/dtype.ts";
import { allDTypes, dtypeByName } from "../../src/dtypes/table.ts";
import type { Weight } from "../../src/graph/graph.ts";

const outputs = 35;
const f32 = dtypeByName("f32")!;

const weight = (name: string, shape: number[], dtype: DType = f32): Weight => ({
  name,
  shape,
  dtype,
});

test("which types lanes multiply 16 bytes at a time, and when", () => {
  const tuned = (cols: number, bytes: number) =>
    allDTypes()
      .filter((dtype) => laneDotOf(weight("matrix", [outputs, cols], dtype), bytes))
      .map(({ name }) => name)
      .sort();
  const blocks = ["mxfp4", "q4_0", "q4_1", "q4_k", "q6_k", "q8_0"];
  expect(tuned(512, 16384)).toEqual(["f16", "f32", ...blocks]);
  expect(tuned(96, 16384)).toEqual(["f16", "f32", "mxfp4", "q4_0", "q4_1", "q8_0"]);
  expect(tuned(4096, 16384)).toEqual(["f16", ...blocks]);
  expect(tuned(45, 16384)).toEqual([]);
  // Activations are staged in workgroup memory, where they must fit.
  expect(tuned(11264, 16384)).toEqual(blocks);
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
