// Architectures on the GPU against llama.cpp (archs-golden.ts): those that differ in what the GPU computes. All of them with
// LANTERN_TEST_ALL=1: a software adapter, which is what most machines have for this, takes seconds for each.

import { expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { readOverrides } from "../../src/backends/split/overrides.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { leftOut } from "../support/exhaustive.ts";
import { describeGpu, gpuBackend, openGpu } from "../support/gpu.ts";
import { describeShared } from "../support/shared.ts";
import { archFiles, expectArch } from "./archs-golden.ts";

const { supported } = archFiles();
const some = [
  ...[
    "gemma2",
    "granite_swa",
    "qwen2moe",
    "minimax-m2",
    "gpt-oss",
    "bailingmoe2",
    "chatglm",
    "stablelm-12b",
    "bloom",
    "gpt2",
  ],
  ...["mistral3-yarn", "apertus", "gemma4-e2b", "jamba", "qwen35"],
  ...["bert", "jina-bert-v2", "modern-bert", "t5encoder"],
];

describeShared("llama.cpp's logits on webgpu", "archs", () => {
  describeGpu("webgpu", () => {
    test.each(leftOut === undefined ? supported : some)("%s", async (file) => {
      await expectArch(file, await gpuBackend(), "brief");
      expect.hasAssertions();
    });

    test("gpt-oss, where shaders bind 8 storage buffers", async () => {
      const gpu = await gpuBackend({ limits: { storageBuffers: 8 } });
      await expectArch("gpt-oss", gpu, "brief");
      expect.hasAssertions();
    });

    test.each(["qwen2moe", "gpt-oss"])(
      "%s, experts on the processor, and in slots",
      async (file) => {
        const host = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
        const overrides = readOverrides({ cpuExperts: "all" });
        const both = { host, device: await gpuBackend(), layers: "all", overrides } as const;
        await expectArch(file, new SplitBackend(both), "brief");
        await expectArch(file, new WebGpuBackend(await openGpu(), { expertSlots: 2 }), "brief");
        expect.hasAssertions();
      },
    );

    test.each([
      ["rwkv7", 2],
      ["gemma4-e2b", 6],
    ])("%s, the last layers beside a processor", async (file, layers) => {
      const host = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
      const device = await gpuBackend();
      await expectArch(file, new SplitBackend({ host, device, layers }), "brief");
      expect.hasAssertions();
    });
  });
});
