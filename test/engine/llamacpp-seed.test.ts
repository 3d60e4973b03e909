// A seed means what it means in llama.cpp: the texts that its server's tests expect of seed 42, on the same file.

import { expect, it } from "vitest";
import { open } from "../../src/index.ts";
import { describeShared, sharedPath } from "../support/shared.ts";

const file = "models/stories260K/stories260K-F32.gguf";

describeShared("seed 42 tells llama.cpp's story", file, () => {
  it.each([
    ["I believe the meaning of life is", 8, /going|bed/],
    [
      "<|im_start|>system\nBook<|im_end|>\n<|im_start|>user\nHey<|im_end|>\n<|im_start|>assistant\n",
      8,
      /But she couldn't/,
    ],
    [
      "<|im_start|>system\nBook<|im_end|>\n<|im_start|>user\nWhat is the best book<|im_end|>\n<|im_start|>assistant\n",
      8,
      /Suddenly/,
    ],
  ])("%j", async (prompt, maxTokens, expected) => {
    await using model = await open(sharedPath(file), { threads: 1 });
    const { text } = await model.generate(prompt, { seed: 42, maxTokens }).result;
    expect(text).toMatch(expected);
  });
});
