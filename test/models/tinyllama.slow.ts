// TinyLlama-1.1B-Chat (IQ2_XXS, 22 layers, real shapes) from the catalog, against llama.cpp's logits for the same file,
// and one chat question. Downloads the model once; minutes on the reference backend.

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { resolveModel } from "../../src/catalog/resolve.ts";
import { type LogitsResult, type Model, open } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { describeShared, sharedPath } from "../support/shared.ts";

let model: Model;
beforeAll(async () => {
  const path = await resolveModel("tinyllama-chat", { platform: nodeDownloadPlatform() });
  model = await open(path, { kvType: "f32" });
});
afterAll(() => model?.dispose());

describeShared("golden logits", "golden/tinyllama-IQ2_XXS.json", () => {
  const { cases } = JSON.parse(
    readFileSync(sharedPath("golden/tinyllama-IQ2_XXS.json"), "utf8"),
  ) as {
    cases: (LogitsResult & { prompt: string })[];
  };
  test.each(cases)("$prompt", async (expected) => {
    const got = await model.logits(expected.prompt);
    expect(got.tokens).toEqual(expected.tokens);
    expected.positions.forEach(({ norm, top }, i) => {
      const position = got.positions[i]!;
      expect(Math.abs(position.norm / norm - 1), `norm at ${i}`).toBeLessThan(0.04);
      const [best, second] = top;
      if (best![1] - second![1] > 0.5) expect(position.top[0]![0], `top-1 at ${i}`).toBe(best![0]);
    });
  });
});

// In 2 bits it believes that Japan is the capital of Japan (so does llama.cpp, see the golden text), but it knows Paris.
test("answers a question", async () => {
  const chat = model.chat({ temperature: 0, maxTokens: 20 });
  const { text } = await chat.send("What is the capital of France?").result;
  expect(text).toContain("Paris");
});
