// Attention without a causal mask against llama.cpp: tiny models of architectures that have none (option-archs.ts), on the
// reference, WebAssembly, and the machine code that runs here, and split between two backends. On the GPU:
// webgpu-options-golden.test.ts. The other options of attention: archs.test.ts.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { nativeHere } from "../support/native.ts";
import { describeShared } from "../support/shared.ts";
import { expectGolden } from "./arch-golden.ts";
import { optionArchs } from "./option-archs.ts";

const cpu = { level: 3, threads: 1, startThread: undefined } as const;
const backends: readonly { name: string; make: () => Backend }[] = [
  { name: "reference", make: () => new ReferenceBackend() },
  { name: "wasm", make: () => new CpuBackend({ ...cpu, native: "a test" }) },
  ...nativeHere.map(({ name, native }) => ({
    name,
    make: () => new CpuBackend({ ...cpu, native }),
  })),
  {
    name: "split",
    make: () => {
      const host = new CpuBackend({ ...cpu, native: "a test" });
      return new SplitBackend({ host, device: new ReferenceBackend(), layers: 2 });
    },
  },
];

describeShared("llama.cpp's logits", "archs", () => {
  const cases = Object.keys(optionArchs).flatMap((name) =>
    backends.map((backend) => ({ name, backend: backend.name, make: backend.make })),
  );
  test.each(cases)("$name, $backend", async ({ name, make }) => {
    await expectGolden(name, optionArchs[name]!, make());
    expect.hasAssertions();
  });
});
