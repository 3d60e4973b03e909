// Which results of attention are records, and which of gate and up. What is computed with them: webgpu-fused.test.ts, webgpu-layers.test.ts.
// Held against: lists of values written here.

import { expect, test } from "vitest";
import { headsRecord, recordShape } from "../../src/backends/webgpu/wgsl/record.ts";
import { blockQuantsOf } from "../../src/backends/webgpu/wgsl/round-activations.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Value } from "../../src/graph/graph.ts";

const row = (cols: number): Value => ({ id: 0, name: "row", rows: "tokens", cols }) as Value;

function hasHeadsRecord(type: string, headDim: number): boolean {
  const cols = headDim * 8;
  const weight = { name: "w", shape: [64, cols], dtype: dtypeByName(type)! };
  return headsRecord(row(cols), headDim, weight) !== undefined;
}

test("attention: heads of whole blocks of 32", () => {
  for (const type of ["q4_0", "q4_1", "q8_0"]) {
    expect([32, 64, 128, 256].map((headDim) => hasHeadsRecord(type, headDim))).not.toContain(false);
    expect([80, 48].map((headDim) => hasHeadsRecord(type, headDim))).not.toContain(true);
  }
});

test("attention: no blocks of 256, whose lanes are more than a subgroup, and no half floats", () => {
  for (const type of ["q4_k", "q6_k", "f16"]) {
    expect([32, 64, 128, 256, 512].map((size) => hasHeadsRecord(type, size))).not.toContain(true);
  }
});

test("gate and up: as many rows of a subgroup as a workgroup needs for whole blocks", () => {
  const shape = { rows: 4, subgroups: 8, split: 1 };
  const ofType = (activation: string) => ({
    value: row(11_264),
    quants: blockQuantsOf(activation)!,
  });
  expect(recordShape(ofType("q8_0"), shape)).toEqual({ ...shape, rows: 8 });
  expect(recordShape(ofType("q8_k"), shape)).toBeUndefined();
  expect(recordShape(ofType("q8_0"), { ...shape, subgroups: 2 })).toBeUndefined();
});
