// Mixtures of experts on the GPU against llama.cpp's logits for the same files. Two of them: a software adapter, which is
// what most machines have for this, takes seconds for each.

import { test } from "vitest";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { describeShared } from "../support/shared.ts";
import { expectGolden } from "./moe-golden.ts";

describeShared("mixtures of experts: llama.cpp's logits", "archs/qwen2moe.gguf", () => {
  describeGpu("webgpu", () => {
    test.each(["qwen2moe", "minimax-m2"])("%s", async (name) => {
      await expectGolden(name, await gpuBackend());
    });
  });
});
