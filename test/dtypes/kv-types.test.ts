// The types of a KV cache are listed once; whoever keeps a cache has a format for each of them, and none besides.
// Held against: the tables of formats.

import { expect, test } from "vitest";
import { kvFormatOf } from "../../src/backends/webgpu/wgsl/kv-formats.ts";
import { defaultKvType, isKvType, kvTypes, kvTypesText } from "../../src/dtypes/kv-types.ts";
import { allDTypes, dtypeByName } from "../../src/dtypes/table.ts";
import { kvFormats } from "../../src/kernels/ops/attention/kv-formats.ts";

test("every type of the list can be written, and has a format on the CPU and on a GPU", () => {
  expect(kvFormats.map(({ name }) => name)).toEqual(kvTypes);
  for (const name of kvTypes) {
    const dtype = dtypeByName(name)!;
    expect(dtype.quantize, name).toBeDefined();
    expect(kvFormatOf(dtype), name).toBeDefined();
  }
});

test("no other type has", () => {
  const others = allDTypes().filter(({ name }) => !isKvType(name));
  expect(others.length).toBeGreaterThan(15);
  expect(others.filter((dtype) => kvFormatOf(dtype) !== undefined)).toEqual([]);
});

test("messages name all of them", () => {
  expect(kvTypesText).toBe("f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1 or iq4_nl");
  expect(isKvType(defaultKvType)).toBe(true);
  expect(isKvType("q4_k")).toBe(false);
});
