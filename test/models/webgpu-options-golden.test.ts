// Attention without a causal mask on the GPU against llama.cpp (option-archs.ts); its other options: webgpu-archs.test.ts.

import { expect, test } from "vitest";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { describeShared } from "../support/shared.ts";
import { expectGolden } from "./arch-golden.ts";
import { optionArchs } from "./option-archs.ts";

describeShared("llama.cpp's logits on webgpu", "archs", () => {
  describeGpu("webgpu", () => {
    test.each(["dream"])("%s", async (name) => {
      await expectGolden(name, optionArchs[name]!, await gpuBackend());
      expect.hasAssertions();
    });
  });
});
