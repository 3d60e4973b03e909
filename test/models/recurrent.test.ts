// Recurrent state on every backend against llama.cpp, and that its bits depend neither on threads nor on how a text is cut into
// batches nor on other sequences beside it.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import type { CpuOptions } from "../../src/backends/cpu/cpu-options.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nativeHere } from "../support/native.ts";
import { describeShared } from "../support/shared.ts";
import { advance, expectArch, loadArch, newSequence } from "./archs-golden.ts";

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
    make: () => new SplitBackend({ host: cpu({}), device: new ReferenceBackend(), layers: 1 }),
  },
];

const files = ["lfm2", "qwen35"];

describeShared("llama.cpp's logits of recurrent layers", "archs", () => {
  const cases = files.flatMap((file) => backends.map(({ name, make }) => ({ file, name, make })));
  test.each(cases)("$file, $name", async ({ file, make }) => {
    await expectArch(file, make());
    expect.hasAssertions();
  });
});

describeShared("the same bits", "archs", () => {
  const tokens = Array.from({ length: 30 }, (_, i) => (i * 37 + 5) % 500);
  const native = nativeHere[0]?.native ?? "a test";

  /** The logits of the last token, after batches of so many tokens; with others of another text in between. */
  async function lastLogits(
    file: string,
    options: Partial<CpuOptions>,
    perBatch: number,
    hasNeighbour = false,
  ): Promise<Float32Array> {
    const engine = await loadArch(file, cpu({ native, ...options }));
    try {
      const one = await newSequence(engine, tokens.length);
      const other = await newSequence(engine, tokens.length);
      let last: Float32Array = new Float32Array();
      for (let at = 0; at < tokens.length; at += perBatch) {
        const part = tokens.slice(at, at + perBatch);
        const beside = hasNeighbour ? advance(engine, other, part.toReversed()) : undefined;
        last = (await advance(engine, one, part)).at(-1)!;
        await beside;
      }
      return last;
    } finally {
      engine.dispose();
    }
  }

  test.each(["mamba", "nemotron_h", "qwen3next"])("%s", async (file) => {
    const expected = await lastLogits(file, {}, 30);
    expect(await lastLogits(file, { threads: 2, startThread }, 30)).toEqual(expected);
    expect(await lastLogits(file, {}, 1)).toEqual(expected);
    expect(await lastLogits(file, {}, 7, true)).toEqual(expected);
  });
});
