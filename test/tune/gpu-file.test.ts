// Measured GPUs in their file, and as a device: what is kept, what is refused, and which peak counts.

import { describe, expect, test } from "vitest";
import { type GpuMeasurement, gpuDevice } from "../../src/limits/gpu-device.ts";
import { gpusFromText, gpusToText, withGpu } from "../../src/machine/gpu-file.ts";

const gpu: GpuMeasurement = {
  adapter: "Some GPU, vendor, driver 1",
  name: "Some GPU",
  isSoftware: false,
  readBytesPerSecond: 4e11,
  cachedReads: [{ setBytes: 2 ** 25, bytesPerSecond: 9e11 }],
  f32OpsPerSecond: 2e13,
  f16OpsPerSecond: 4e13,
  int8OpsPerSecond: 8e13,
  matrixOpsPerSecond: undefined,
  link: { uploadBytesPerSecond: 2e10, downloadBytesPerSecond: 1e10, roundTripSeconds: 1e-4 },
  measuredAt: "2026-11-15T05:10:37.842Z",
};

describe("the file", () => {
  test("gives back what was written", () => {
    const bare = { ...gpu, adapter: "another", f16OpsPerSecond: undefined, cachedReads: [] };
    expect(gpusFromText(gpusToText([gpu, bare]))).toEqual([gpu, bare]);
  });

  test("a new measurement takes the place of its adapter's old one, and of no other's", () => {
    const other = { ...gpu, adapter: "another" };
    const again = { ...gpu, readBytesPerSecond: 5e11 };
    expect(withGpu([gpu, other], again)).toEqual([other, again]);
  });

  test.each([
    ["no JSON", "{", "not JSON"],
    ["another version", '{"lantern_gpu": 0}', "version 0, expected 1"],
    ["no list", '{"lantern_gpu": 1}', "missing or wrong"],
    ["a rate that is none", gpusToText([{ ...gpu, f32OpsPerSecond: -1 }]), "missing or wrong"],
    ["a date that is none", gpusToText([{ ...gpu, measuredAt: "soon" }]), "missing or wrong"],
  ])("%s is refused with a sentence", (_, text, reason) => {
    expect(gpusFromText(text)).toEqual({ refused: expect.stringContaining(reason) });
  });
});

describe("as a device", () => {
  test("small models are held against the cache, large ones against memory", () => {
    expect(gpuDevice(gpu, 2 ** 20).bytesPerSecond).toBe(9e11);
    expect(gpuDevice(gpu, 2 ** 26).bytesPerSecond).toBe(9e11);
    expect(gpuDevice(gpu, 2 ** 27).bytesPerSecond).toBe(4e11);
    expect(gpuDevice(gpu).bytesPerSecond).toBe(4e11);
  });

  test("a peak is that of the fastest units that may compute it", () => {
    expect(gpuDevice(gpu).opsPerSecond).toEqual({ f32: 2e13, f16: 4e13, int8: 8e13 });
    const withMatrices = { ...gpu, matrixOpsPerSecond: 6e13 };
    expect(gpuDevice(withMatrices).opsPerSecond).toEqual({ f32: 6e13, f16: 6e13, int8: 8e13 });
  });
});
