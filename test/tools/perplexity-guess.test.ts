// A perplexity that is worse than a guess among all tokens is said to be: in the result, and nowhere else.
// Held against: the size of the vocabulary.

import { expect, test } from "vitest";
import { open, perplexity } from "../../src/index.ts";
import { changedModel } from "../support/changed-model.ts";

const text = "the cat sat at the sea and ate eels ".repeat(6);

test.each([
  ["a guess", 0, false],
  ["sure of the wrong tokens", 1000, true],
] as const)("a model that is %s", async (_, loud, isWorse) => {
  const file = await changedModel({ weightType: "f32" }, "output_norm.weight", (values) => {
    values.fill(loud * 0.01);
  });
  await using model = await open(file, { threads: 1, contextSize: 64 });
  const result = await perplexity(model, text, { contextSize: 32 });
  const { vocabSize } = model.info;
  expect(result.uniform).toBe(vocabSize);
  expect(result.perplexity.value > 2 * vocabSize).toBe(isWorse);
  if (!isWorse) expect(result.warning).toBeUndefined();
  else {
    expect(result.warning).toMatch(
      new RegExp(`worse than a guess.* ${vocabSize} tokens.*tokenizer.*weights`),
    );
  }
});
