// Saved state and a shifted context on the GPU, and on a model that is split between it and the processor: the same texts as without.

import { expect, test } from "vitest";
import type { GenerateOptions } from "../../../src/api/api.ts";
import type { Backend } from "../../../src/backends/backend.ts";
import { ReferenceBackend } from "../../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../../src/backends/split/split.ts";
import { crc32 } from "../../../src/base/crc32.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { generate, type RunControl } from "../../../src/engine/generator.ts";
import { describeGpu, gpuBackend } from "../../support/gpu.ts";
import { mixedName } from "../../support/mixed-arch.ts";
import { type TinyOptions, tinyEngine, tinyPrompt } from "../../support/tiny-engine.ts";

const control: RunControl = { aborted: false, yieldThread: async () => {}, now: () => 0 };
const how = { crc32, isAborted: () => false };
const prompt = tinyPrompt(1, 60);

async function answer(engine: Engine, tokens: readonly number[], more: GenerateOptions) {
  const options = { temperature: 0, ignoreEos: true, ...more };
  return await generate(engine, { tokens, options }, control, () => {});
}

/** Saved after a first answer and loaded into another engine, a text goes on as it does here. */
async function goesOn(options: TinyOptions, backends: readonly Backend[]): Promise<void> {
  const [engine, other] = [
    await tinyEngine({ ...options, backend: backends[0]!, parallel: 2 }),
    await tinyEngine({ ...options, backend: backends[1]!, parallel: 2 }),
  ];
  const first = await answer(engine, prompt, { maxTokens: 12 });
  const text = [...prompt, ...first.tokenIds];
  const pieces: Uint8Array[] = [];
  await engine.saved.save(text, how, async () => ({
    write: async (piece) => void pieces.push(piece.slice()),
  }));
  const bytes = Buffer.concat(pieces);
  const next = [...text, ...tinyPrompt(2, 9)];
  const here = await answer(engine, next, { maxTokens: 8 });
  await other.saved.load(
    {
      name: "test",
      size: bytes.length,
      readInto: async (at, target) => target.set(bytes.subarray(at, at + target.length)),
    },
    how,
  );
  const there = await answer(other, next, { maxTokens: 8 });
  expect(there.timings.cachedTokens).toBe(text.length - 1);
  expect(there.tokenIds).toEqual(here.tokenIds);
  engine.dispose();
  other.dispose();
}

const split = async (): Promise<Backend> =>
  new SplitBackend({ host: new ReferenceBackend(), device: await gpuBackend(), layers: 1 });

describeGpu("on the GPU", () => {
  test("a text goes on where it was saved", async () => {
    await goesOn({ architecture: mixedName }, [await gpuBackend(), await gpuBackend()]);
    await goesOn({ kvType: "q8_0" }, [await split(), await split()]);
  });

  test("a shifted context gives the text of the reference", async () => {
    const said: number[][] = [];
    const backends = [new ReferenceBackend(), await gpuBackend(), await split()];
    for (const backend of backends) {
      const engine = await tinyEngine({ contextSize: 96, backend });
      const result = await answer(engine, prompt, { maxTokens: 90, contextShift: true });
      expect(result.timings.contextShifts).toHaveLength(2);
      said.push(result.tokenIds);
      engine.dispose();
    }
    expect(said[1]).toEqual(said[0]);
    expect(said[2]).toEqual(said[0]);
  });
});
