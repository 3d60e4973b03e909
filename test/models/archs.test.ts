// Every architecture of the table on the CPU against llama.cpp (archs-golden.ts): all files of ../shared/archs that are supported.
// Some also in `npm test`: archs-quick.test.ts. All opt levels: archs-levels.test.ts. On the GPU: webgpu-archs.test.ts.

import { expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import type { CpuOptions } from "../../src/backends/cpu/cpu-options.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nativeHere } from "../support/native.ts";
import { describeShared } from "../support/shared.ts";
import { archFiles, expectArch } from "./archs-golden.ts";

const { supported, others } = archFiles();
const { name, native } = nativeHere[0] ?? { name: "wasm", native: "a test" };
const cpu = (options: Partial<CpuOptions> = {}) =>
  new CpuBackend({ level: 3, threads: 1, startThread: undefined, native, ...options });

describeShared(`llama.cpp's logits, ${name}`, "archs", () => {
  test.each(supported)("%s", async (file) => {
    await expectArch(file, cpu());
    expect.hasAssertions();
  });

  test.each(["qwen2moe", "gemma2"])("%s, two threads", async (file) => {
    const startThread = () => nodePlatform.startThread("compute");
    await expectArch(file, cpu({ threads: 2, startThread }));
    expect.hasAssertions();
  });

  test.skip(`${others.join(" ")} [skipped: not supported yet]`, () => {});
});
