// A GPU that was measured in half a second: kept and marked as such, in the file, in its device and in the limits made with it.
// Held against: rates written here.

import { expect, test } from "vitest";
import { type GpuMeasurement, gpuDevice } from "../../src/limits/gpu-device.ts";
import { gpusFromText, gpusToText, withGpu } from "../../src/machine/gpu-file.ts";

const full: GpuMeasurement = {
  adapter: "a",
  name: "a GPU",
  isSoftware: false,
  readBytesPerSecond: 1e12,
  cachedReads: [{ setBytes: 1e6, bytesPerSecond: 2e12 }],
  f32OpsPerSecond: 1e13,
  f16OpsPerSecond: undefined,
  int8OpsPerSecond: undefined,
  matrixOpsPerSecond: undefined,
  link: undefined,
  measuredAt: "2026-11-19T05:10:37.842Z",
};
const quick: GpuMeasurement = { ...full, quick: true };

test("the file keeps the mark, and a full measurement replaces it", () => {
  expect(gpusFromText(gpusToText([quick]))).toEqual([quick]);
  expect(gpusFromText(gpusToText(withGpu([quick], full)))).toEqual([full]);
  expect(gpusFromText(gpusToText([quick]).replace("true", '"yes"'))).toHaveProperty("refused");
});

test("its device says so", () => {
  expect(gpuDevice(quick)).toMatchObject({ quick: true, source: "measured quickly 2026-11-19" });
  expect(gpuDevice(full).quick).toBeUndefined();
});
