// A draft model through the API: open(model, { draftModel }), on a thread of its own as users have it.

import { afterAll, expect, test } from "vitest";
import { ModelError, open, UsageError } from "../../../src/index.ts";
import { tinyFile } from "../../support/tiny-file.ts";

const files: { remove(): void }[] = [];
afterAll(() => {
  for (const file of files) file.remove();
});

async function tracked(...given: Parameters<typeof tinyFile>): ReturnType<typeof tinyFile> {
  const file = await tinyFile(...given);
  files.push(file);
  return file;
}

const options = { maxTokens: 40, temperature: 0, ignoreEos: true };

test("the text is the same with a draft model, for one and for several at once", async () => {
  const file = await tracked({ seed: 3 });
  const other = await tracked({ seed: 5, name: "other", moreControls: ["<more>"] });
  await using plain = await open(file.path, { speculate: false, threads: 1 });
  const expected = await plain.generate("the cat sat", options).result;
  for (const draftModel of [file.path, other.path]) {
    await using model = await open(file.path, { draftModel, parallel: 2, threads: 1 });
    const runs = [1, 2].map(() => model.generate("the cat sat", options).result);
    for (const { tokenIds, timings } of await Promise.all(runs)) {
      expect(tokenIds).toEqual(expected.tokenIds);
      const { drafted = 0, accepted = 0 } = timings.speculation ?? {};
      expect(accepted).toBeLessThanOrEqual(drafted);
    }
    const stopped = model.generate("the cat", { ...options, maxTokens: 4000 });
    for await (const _ of stopped) break;
  }
});

test("a draft model that does not fit the model is refused, and says that it is the draft model", async () => {
  const file = await tracked();
  const other = await tracked({
    name: "other",
    more: [
      [
        "tokenizer.ggml.tokens",
        { type: "array<string>", value: Array.from({ length: 265 }, (_, i) => `word${i}`) },
      ],
      ["tokenizer.ggml.token_type", { type: "array<i32>", value: new Array<number>(265).fill(1) }],
    ],
  });
  const opening = open(file.path, { draftModel: other.path, threads: 1 });
  await expect(opening).rejects.toThrow(ModelError);
  await expect(opening).rejects.toThrow(/^draft model: .* cannot draft for .* tokens, 2 are among/);
  const missing = open(file.path, { draftModel: "no-such-model.gguf" });
  await expect(missing).rejects.toThrow(/no-such-model/);
});

test("options of a draft model need one", async () => {
  await expect(open("none", { draftThreads: 2 })).rejects.toThrow(UsageError);
  await expect(open("none", { draftGpuLayers: 2 })).rejects.toThrow(/draftGpuLayers, but no draft/);
  await expect(open("none", { draftThreads: 0, draftModel: "x" })).rejects.toThrow(
    /^draftThreads: got 0, expected a whole number from 1 to 256/,
  );
});
