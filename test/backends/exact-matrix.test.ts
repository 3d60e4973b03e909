// Models, types and splits: 200 greedy tokens with exact kernels are the processor's, with its log probabilities to the last bit, on
// whatever adapter the tests run on. `npm run bench:splits -- MODELS --types ... --both --tokens 200` prints the table of
// docs/journal/gpu.md, with the fast kernels beside them.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { type OpenOptions, open, quantize } from "../../src/index.ts";
import { someOf } from "../support/exhaustive.ts";
import { describeGpu } from "../support/gpu.ts";
import { hasShared, sharedPath } from "../support/shared.ts";

interface Case {
  readonly file: string;
  readonly type: string;
  /** Values of gpuLayers: every one, or some. */
  readonly splits: readonly number[];
}

const story = "models/story/story-656K-F32.gguf";
const models: readonly (readonly [file: string, splits: readonly number[]])[] = [
  [story, [1, 2, 3]],
  ["models/stories260K/stories260K-F32.gguf", [1, 2, 3, 4, 5, 6]],
  ["archs/gemma2.gguf", [1, 2, 3, 4, 5]],
];
const types = ["q4_0", "q8_0", "iq4_nl"];
const all: Case[] = models.flatMap(([file, splits]) =>
  types.map((type) => ({ file, type, splits })),
);
/** Every split with one type, the other types at one split: each op of each type is in exact-ops.test.ts, every split in exact-splits.test.ts. */
const cases = someOf("models, types and splits", all, [
  all[0]!,
  { ...all[1]!, splits: [2] },
  { ...all[2]!, splits: [1] },
  { ...all[4]!, splits: [3] },
  { ...all[6]!, splits: [2] },
]);

let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "exact-"));
});
afterAll(async () => await rm(folder, { recursive: true, force: true }));

async function answer(path: string, options: OpenOptions, maxTokens = 200) {
  await using model = await open(path, { contextSize: 256, speculate: false, ...options });
  const generation = model.generate("Once upon a time", {
    temperature: 0,
    maxTokens,
    ignoreEos: true,
    logprobs: 2,
  });
  const logprobs: number[] = [];
  for await (const { logprob = 0, top = [] } of generation.tokens()) {
    logprobs.push(logprob, ...top.map((other) => other.logprob));
  }
  return { ids: (await generation.result).tokenIds, logprobs, notes: model.info.backend.notes };
}

describeGpu("exact", () => {
  for (const { file, type, splits } of cases) {
    const reason = hasShared(file) ? "" : ` [skipped: ../shared/${file} is not on this machine]`;
    const title = `${file}, ${type}, -ngl 0 and ${splits.join(", ")}: the same 200 tokens${reason}`;
    test.skipIf(!hasShared(file))(title, { timeout: 600_000 }, async () => {
      const path = join(folder, `${type}.gguf`);
      await quantize(sharedPath(file), path, type);
      onTestFinished(() => rm(path));
      const { ids, logprobs } = await answer(path, { gpuLayers: 0 });
      expect(ids).toHaveLength(200);
      for (const gpuLayers of splits) {
        const other = await answer(path, { gpuLayers, exact: true });
        expect(other.ids, `-ngl ${gpuLayers}`).toEqual(ids);
        expect(other.logprobs, `-ngl ${gpuLayers}`).toEqual(logprobs);
        expect(other.notes.join("\n")).toContain("exact: the bits of the CPU");
      }
    });
  }

  const reason = hasShared(story) ? "" : ` [skipped: ../shared/${story} is not on this machine]`;
  test.skipIf(!hasShared(story))(
    `where nobody says, it is measured once, and remembered${reason}`,
    { timeout: 600_000 },
    async () => {
      vi.stubEnv("LANTERN_CACHE", folder);
      vi.stubEnv("LANTERN_NO_TUNE", undefined);
      onTestFinished(() => void vi.unstubAllEnvs());
      const said = async (options: OpenOptions) => {
        const { notes, ids } = await answer(sharedPath(story), options, 8);
        const isExact = notes.some((note) => note.includes("exact: the bits of the CPU"));
        return { choice: notes.filter((note) => note.includes("exact: auto")), isExact, ids };
      };
      const first = await said({ gpuLayers: 1 });
      expect(first.choice).toEqual([
        expect.stringMatching(
          /^exact: auto, (on|off) \(measured\): .* ms a generated token instead of .*$/,
        ),
      ]);
      expect(first.choice[0]!.includes(", on ")).toBe(first.isExact);
      const again = await said({ gpuLayers: 1 });
      expect(again.choice).toEqual([first.choice[0]!.replace("measured", "remembered")]);
      expect(again).toEqual({ ...first, choice: again.choice });
      // Where it is said, and where there is nothing to choose.
      for (const options of [{ exact: false, gpuLayers: 1 }, { gpuLayers: "all" }, {}] as const) {
        const { choice, isExact } = await said(options);
        expect({ choice, isExact }).toEqual({ choice: [], isExact: false });
      }
    },
  );
});
