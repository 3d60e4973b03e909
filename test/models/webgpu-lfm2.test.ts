// Recurrent state on the GPU against llama.cpp: see lfm2.test.ts.

import { expect, test } from "vitest";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { describeShared } from "../support/shared.ts";
import { expectLfm2 } from "./lfm2-golden.ts";

describeShared("llama.cpp's logits of lfm2", "archs/lfm2.gguf", () => {
  describeGpu("webgpu", () => {
    test("every position, reused and three at a time", async () => {
      await expectLfm2(await gpuBackend());
      expect.hasAssertions();
    });
  });
});
