// Recurrent state against llama.cpp: the tiny LFM2 of ../shared/archs, whose layers convolve and attend in turn.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend, type CpuOptions } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nativeHere } from "../support/native.ts";
import { describeShared } from "../support/shared.ts";
import { expectLfm2 } from "./lfm2-golden.ts";

const startThread = () => nodePlatform.startThread("compute");
const cpu = (options: Partial<CpuOptions>): Backend =>
  new CpuBackend({ level: 3, threads: 1, startThread: undefined, ...options });

const backends: readonly { name: string; make: () => Backend }[] = [
  { name: "reference", make: () => new ReferenceBackend() },
  { name: "opt level 2", make: () => cpu({ level: 2 }) },
  { name: "wasm, two threads", make: () => cpu({ threads: 2, startThread }) },
  ...nativeHere.map(({ name, native }) => ({ name, make: () => cpu({ native }) })),
  {
    name: "two backends",
    make: () => new SplitBackend({ host: cpu({}), device: new ReferenceBackend(), layers: 3 }),
  },
];

describeShared("llama.cpp's logits of lfm2", "archs/lfm2.gguf", () => {
  test.each(backends)("$name", async ({ make }) => {
    await expectLfm2(make());
    expect.hasAssertions();
  });
});
