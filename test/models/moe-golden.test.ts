// Mixtures of experts against llama.cpp's logits for the same files, on the reference, on the CPU backend (row by row, in row
// panels, in machine code, with one thread and with two), and split between two backends.

import { describe, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend, type CpuOptions } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nativeHere } from "../support/native.ts";
import { describeShared } from "../support/shared.ts";
import { expectGolden, moeNames } from "./moe-golden.ts";

const startThread = () => nodePlatform.startThread("compute");
const cpu = (options: Partial<CpuOptions>) => () =>
  new CpuBackend({ level: 3, threads: 1, startThread: undefined, ...options });

const contestants: [name: string, make: () => Backend][] = [
  ["reference", () => new ReferenceBackend()],
  ["cpu, level 2", cpu({ level: 2 })],
  ["cpu, level 3", cpu({})],
  ["cpu, level 3, two threads", cpu({ threads: 2, startThread })],
  [
    "split between cpu and reference",
    () => new SplitBackend({ host: cpu({})(), device: new ReferenceBackend(), layers: 2 }),
  ],
  ...nativeHere.map(({ name, native }): (typeof contestants)[number] => [
    `cpu, ${name}`,
    cpu({ native }),
  ]),
];

describeShared("mixtures of experts: llama.cpp's logits", "archs/qwen2moe.gguf", () => {
  describe.each(contestants)("%s", (_, makeBackend) => {
    test.each(moeNames)("%s", async (name) => {
      await expectGolden(name, makeBackend());
    });
  });
});
