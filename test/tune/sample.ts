// A small tune file with round numbers, and a GPU, made up.

import type { GpuFacts } from "../../src/backends/webgpu/device.ts";
import { sealed } from "../../src/tune/seal.ts";
import type { StageTimes, TuneFile } from "../../src/tune/tune-file.ts";
import { subgroupGpu } from "../support/gpu-facts.ts";

const t = (init: number, compute: number): StageTimes => ({ init, compute });

/** Profiles: 0 the default of a machine with 16 registers, 1 another tile, 2 one token at a time. */
export const sampleFile: TuneFile = {
  engine: "kernels 00000000",
  cpu: "Example CPU @ 2 GHz",
  cores: 2,
  features: "wasm relaxed dot4=unsigned",
  date: "2026-11-15T05:10:00.000Z",
  profiles: [
    { backend: "cpu", level: 3, variant: "8x4.compact", idle: "spin" },
    { backend: "cpu", level: 3, variant: "16x2.compact", idle: "spin" },
    { backend: "cpu", level: 3, variant: "4s.compact", idle: "spin" },
  ],
  groups: [
    {
      dtype: "q4_0",
      n: 1024,
      k: 512,
      threads: 1,
      lines: [
        { m: 1, times: [t(10, 100), t(10, 100), t(10, 100)] },
        { m: 6, times: [t(20, 200), t(20, 120), t(20, 200)] },
        { m: 12, times: [t(80, 400), t(80, 500), undefined] },
      ],
    },
    {
      dtype: "q4_0",
      n: 1024,
      k: 512,
      threads: 2,
      lines: [
        { m: 1, times: [t(10, 60), t(10, 60), t(10, 60)] },
        { m: 6, times: [t(20, 110), t(20, 70), t(20, 110)] },
        { m: 12, times: [t(40, 210), t(40, 260), undefined] },
      ],
    },
  ],
};

export const gpuFacts: GpuFacts = {
  ...subgroupGpu,
  ...{ name: "Some GPU", vendor: "vendor", driver: "driver 1", timestampQueries: true },
  ...{ maxBufferBytes: 2 ** 30, maxBindingBytes: 2 ** 30 },
  ...{ workgroupStorageBytes: 32_768, storageBuffers: 10 },
};

/** An edited text with the end mark that belongs to it: what is wrong with it is something else. */
export function resealed(text: string): string {
  return sealed(text.replace(/^end .*\n/m, ""));
}
