// The types of a KV cache are listed once; whoever keeps a cache has a format for each of them, and none besides.

import { expect, test } from "vitest";
import { kvFormatOf } from "../../src/backends/webgpu/wgsl/kv-format.ts";
import { defaultKvType, isKvType, kvTypes, kvTypesText } from "../../src/dtypes/kv-types.ts";
import { allDTypes, dtypeByName } from "../../src/dtypes/table.ts";
import { kvFormats } from "../../src/kernels/ops/attention/kv-format.ts";

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
  expect(others.length).toBeGreaterThan(20);
  expect(others.filter((dtype) => kvFormatOf(dtype) !== undefined)).toEqual([]);
});

test("messages name all of them", () => {
  expect(kvTypesText).toBe("f32, f16 or q8_0");
  expect(isKvType(defaultKvType)).toBe(true);
  expect(isKvType("q4_0")).toBe(false);
});
