// Texts under grammars are llama.cpp's: greedy, with and without a penalty, all in shared batches (data/grammar-llamacpp.json says
// how they were made).
// Held against: llama.cpp's texts.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { open } from "../../src/index.ts";

interface Case {
  prompt: string;
  grammar: string;
  repeatPenalty: number;
  text: string;
  /** llama.cpp chose an end token: the grammar allowed nothing else, or it was the best. */
  ends: boolean;
}

const { cases } = JSON.parse(
  readFileSync(new URL("data/grammar-llamacpp.json", import.meta.url), "utf8"),
) as { cases: Case[] };

test("greedy texts under a grammar are llama.cpp's", async () => {
  await using model = await open("stories15m", {
    threads: 1,
    kvType: "f32",
    contextSize: 128,
    parallel: cases.length,
  });
  const results = await Promise.all(
    cases.map(async ({ prompt, grammar, repeatPenalty }) => {
      const samplers = ["penalties", "temperature"];
      const options = { temperature: 0, maxTokens: 80, samplers, repeatPenalty };
      return await model.generate(prompt, { ...options, grammar }).result;
    }),
  );
  expect(results.map(({ text }) => text)).toEqual(cases.map(({ text }) => text));
  for (const [i, { ends }] of cases.entries()) {
    if (ends) expect(results[i]!.stopReason).toBe("end");
  }
});
