// A GPU that is not there, for tests of what would be computed on it.

import type { GpuFacts } from "../../src/backends/webgpu/device.ts";

/** What every device has. */
export const plainGpu: GpuFacts = {
  name: "test",
  vendor: "test",
  architecture: "",
  driver: "1",
  isSoftware: false,
  maxBufferBytes: 2 ** 28,
  maxBindingBytes: 2 ** 27,
  memoryBytes: undefined,
  workgroupLanes: 256,
  workgroupStorageBytes: 16_384,
  storageBuffers: 8,
  f16: false,
  subgroups: undefined,
  subgroupMatrix: false,
  timestampQueries: false,
  packedDots: false,
};

/** A large one, with subgroups of 32 lanes. */
export const subgroupGpu: GpuFacts = {
  ...plainGpu,
  ...{ maxBufferBytes: 2 ** 32, maxBindingBytes: 2 ** 31, workgroupStorageBytes: 49_152 },
  ...{ f16: true, subgroups: { min: 32, max: 32 }, packedDots: true },
};
