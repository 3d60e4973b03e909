// A few architectures against llama.cpp in every `npm test`, on the reference and on WebAssembly: softcaps and windows, sinks and
// layers without positions, fused tensors, norms of heads, ALiBi, learned positions, experts, recurrent state, an indexer. All of them, on
// machine code: archs.test.ts.

import { expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { describeShared } from "../support/shared.ts";
import { expectArch } from "./archs-golden.ts";

const wasm = () =>
  new CpuBackend({ level: 3, threads: 1, startThread: undefined, native: "a test" });

describeShared("llama.cpp's logits", "archs", () => {
  const files = [
    ...["gemma2", "granite_swa", "chatglm", "stablelm-12b", "bloom", "gpt2", "qwen2moe"],
    ...["gpt-oss", "mamba", "qwen35", "deepseek32"],
  ];
  test.each(files)("%s, reference", async (file) => {
    await expectArch(file, new ReferenceBackend(), "brief");
    expect.hasAssertions();
  });
  test.each(files)("%s, wasm", async (file) => {
    await expectArch(file, wasm(), "brief");
    expect.hasAssertions();
  });
});
