// Every architecture of the table against llama.cpp (archs-golden.ts) at opt levels 1, 2, 3 and 4, and split between two backends.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import type { CpuOptions } from "../../src/backends/cpu/cpu-options.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { nativeHere } from "../support/native.ts";
import { describeShared } from "../support/shared.ts";
import { archFiles, expectArch } from "./archs-golden.ts";

const cpu = (options: Partial<CpuOptions> = {}): Backend =>
  new CpuBackend({
    ...{ level: 3, threads: 1, startThread: undefined, native: "a test" },
    ...options,
  });

/** Layers on the device, where those that share a KV cache stay together. */
const together: Readonly<Record<string, number>> = { gemma3n: 10, "gemma4-e2b": 6 };

const backends: readonly { name: string; make: (file: string) => Backend }[] = [
  { name: "opt level 1", make: () => new ReferenceBackend() },
  { name: "opt level 2", make: () => cpu({ level: 2 }) },
  { name: "opt level 3", make: () => cpu() },
  ...nativeHere.map(({ name, native }) => ({
    name: `opt level 4, ${name}`,
    make: () => cpu({ native }),
  })),
  {
    name: "two backends",
    make: (file) =>
      new SplitBackend({
        host: cpu(),
        device: new ReferenceBackend(),
        layers: together[file] ?? 2,
      }),
  },
];

describeShared("llama.cpp's logits", "archs", () => {
  const { supported } = archFiles();
  const cases = supported.flatMap((file) => backends.map((backend) => ({ file, ...backend })));
  test.each(cases)("$file, $name", async ({ file, make }) => {
    await expectArch(file, make(file));
    expect.hasAssertions();
  });
});
