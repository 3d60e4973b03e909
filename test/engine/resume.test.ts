// resumeTokens: an answer that is continued after any of its tokens is the answer that one engine writes alone, whatever the sampler, the
// grammar, the stop string; and nothing of it is written twice.

import { expect, test } from "vitest";
import type { GenerateOptions, TokenEvent } from "../../src/api/api.ts";
import type { Engine } from "../../src/engine/engine.ts";
import { type Generated, generate, type RunControl } from "../../src/engine/generator.ts";
import { tinyEngine, tinyPrompt } from "../support/tiny-engine.ts";

const yieldThread = () => new Promise<void>((resolve) => setImmediate(resolve));
const control: RunControl = { aborted: false, yieldThread, now: () => 0 };

async function answer(
  engine: Engine,
  options: GenerateOptions,
): Promise<Generated & { events: TokenEvent[] }> {
  const events: TokenEvent[] = [];
  const tokens = tinyPrompt(1, 5);
  const result = await generate(engine, { tokens, options }, control, (event) =>
    events.push(event),
  );
  return { ...result, events };
}

const cases: readonly [string, GenerateOptions][] = [
  ["greedy", { temperature: 0 }],
  ["the default chain", {}],
  ["a high temperature", { temperature: 1.5, topK: 0, topP: 1, minP: 0 }],
  ["penalties", { repeatPenalty: 5, frequencyPenalty: 2, presencePenalty: 2 }],
  ["DRY", { dryMultiplier: 5, dryAllowedLength: 1, drySequenceBreakers: [] }],
  [
    "XTC, which draws where there is a choice",
    { xtcProbability: 0.5, xtcThreshold: 0.01, minP: 0 },
  ],
  ["mirostat, which learns from logits", { mirostat: 2 }],
  ["dynamic temperature", { temperature: 1, dynatempRange: 0.9, topK: 0, topP: 1 }],
  ["a grammar", { temperature: 1.5, grammar: "root ::= [a-f]+ [A-F]+ [a-z]+" }],
  ["log-probabilities", { logprobs: 2 }],
  ["a context that is full", { ignoreEos: true, maxTokens: 1000 }],
  ["a context that shifts", { ignoreEos: true, contextShift: true, maxTokens: 60 }],
];

test.each(cases)("%s", async (_, sampling) => {
  // The reference has no batches that round otherwise; every backend is held to that by its own tests.
  const engine = await tinyEngine({ contextSize: 32 });
  const options = { maxTokens: 16, seed: 7, ...sampling };
  const whole = await answer(engine, options);
  expect(whole.tokenIds.length).toBeGreaterThan(4);
  const cuts = whole.tokenIds.length > 30 ? [1, 20, 26, 27, 28] : [0, 1, 4, 9];
  for (const cut of [...cuts, whole.tokenIds.length]) {
    const resumeTokens = whole.tokenIds.slice(0, cut);
    const rest = await answer(engine, { ...options, resumeTokens });
    const { text, tokenIds, stopReason, stopString } = whole;
    expect(rest, `after ${cut} tokens`).toMatchObject({ text, tokenIds, stopReason });
    expect(rest.stopString).toBe(stopString);
    expect(rest.events, `after ${cut} tokens`).toEqual(whole.events.slice(cut));
    expect(rest.timings.promptTokens).toBe(5);
  }
});

test("a stop string that begins before the cut", async () => {
  const engine = await tinyEngine();
  const free = await answer(engine, { maxTokens: 16, seed: 3, temperature: 1.2 });
  const stop = [free.text.slice(6, 9)];
  const options = { maxTokens: 16, seed: 3, temperature: 1.2, stop };
  const whole = await answer(engine, options);
  expect(whole.stopReason).toBe("stop");
  for (let cut = 0; cut <= whole.tokenIds.length; cut++) {
    const rest = await answer(engine, { ...options, resumeTokens: whole.tokenIds.slice(0, cut) });
    expect(rest).toMatchObject({ text: whole.text, stopReason: "stop", stopString: stop[0] });
    expect(rest.events).toEqual(whole.events.slice(cut));
  }
});

test("a token that is not in the vocabulary is refused", async () => {
  const engine = await tinyEngine();
  await expect(answer(engine, { resumeTokens: [48] })).rejects.toThrow(
    /resumeTokens: token id 48 is not in the vocabulary \(0 to 47\)/,
  );
});
