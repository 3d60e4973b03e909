// The options of attention on the GPU against llama.cpp (option-archs.ts has the architectures): softcaps and windows, sinks and
// layers without rope, and no causal mask.

import { expect, test } from "vitest";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { describeShared } from "../support/shared.ts";
import { expectGolden } from "./arch-golden.ts";
import { optionArchs } from "./option-archs.ts";

describeShared("llama.cpp's logits on webgpu", "archs", () => {
  describeGpu("webgpu", () => {
    test.each(["gemma2", "granite_swa", "dream"])("%s", async (name) => {
      await expectGolden(name, optionArchs[name]!, await gpuBackend());
      expect.hasAssertions();
    });
  });
});
