// What a generation and an engine report beside the text: how far the prompt is, the bytes of tokens, batches, and the
// facts that a server needs of a model.
// Held against: the tokens and batches that the test asked for.

import { afterAll, beforeAll, expect, test } from "vitest";
import { type Model, open, type TokenEvent } from "../../src/index.ts";

let model: Model;
const prompt = "Once upon a time there was a little girl who had a big red ball. ".repeat(9);

const chatTemplate =
  "{{ messages[0].content }}{% if tools %}|{{ tools[0].name }}{% endif %}|{{ mood }}{% if add_generation_prompt %}|go{% endif %}";

beforeAll(async () => {
  model = await open("stories15m", { threads: 1, chatTemplate });
});

afterAll(async () => {
  await model.dispose();
});

async function events(text: string, options: object): Promise<TokenEvent[]> {
  const list: TokenEvent[] = [];
  for await (const event of model.generate(text, options).tokens()) list.push(event);
  return list;
}

test("progress: before the first batch and after each, then tokens", async () => {
  const total = (await model.tokenize(prompt)).length;
  const options = { progress: true, temperature: 0, maxTokens: 2 };
  const first = (await events(prompt, options)).flatMap(({ progress }) => progress ?? []);
  expect(first[0]).toMatchObject({ total, cached: 0, processed: 0 });
  expect(first.at(-1)).toMatchObject({ total, cached: 0, processed: total });
  expect(first.length).toBeGreaterThan(2); // the prompt is longer than a batch
  for (const [at, { processed, ms }] of first.slice(1).entries()) {
    expect(processed).toBeGreaterThan(first[at]!.processed);
    expect(ms).toBeGreaterThanOrEqual(first[at]!.ms);
  }
  const again = await events(prompt, options);
  expect(again[0]).toMatchObject({ id: -1, text: "", progress: { total, cached: total - 1 } });
  expect(again.filter(({ progress }) => !progress)).toHaveLength(2);
  const silent = await events(prompt, { temperature: 0, maxTokens: 2 });
  expect(silent.every(({ progress }) => progress === undefined)).toBe(true);
});

test("log-probabilities carry the bytes of tokens, also of parts of characters", async () => {
  const bytes = (await model.tokenize("媽", { addBos: false })).slice(-3); // one token for each byte
  const logitBias = new Map(bytes.map((id) => [id, 1000]));
  const options = { logprobs: 3, logitBias, temperature: 0, maxTokens: 1 };
  const [event] = await events("Once", options);
  expect(bytes).toContain(event!.id);
  expect(event!.bytes).toHaveLength(1);
  expect(event!.bytes![0]).toBeGreaterThan(127);
  const [word] = await events("Once upon a", { logprobs: 1, temperature: 0, maxTokens: 1 });
  expect(word!.bytes).toEqual([...new TextEncoder().encode(word!.token)]);
  expect(word!.top![0]!.bytes).toEqual([...new TextEncoder().encode(word!.top![0]!.text)]);
});

test("status counts batches", async () => {
  const before = await model.status();
  await model.generate("Once upon a time", { maxTokens: 4, ignoreEos: true }).result;
  const after = await model.status();
  expect(after.batches).toBeGreaterThanOrEqual(before.batches + 3);
  expect(after.batchSequences - before.batchSequences).toBe(after.batches - before.batches);
});

test("info has the tokens that begin and end a text, and the template", () => {
  expect(model.info).toMatchObject({ bosToken: "<s>", eosToken: "</s>", endTokens: [1, 2] });
  expect(model.info.chatTemplate).toBe(chatTemplate);
});

test("applyTemplate passes tools and variables on", async () => {
  const messages = [{ role: "user" as const, content: "Hi" }];
  expect((await model.applyTemplate(messages)).text).toBe("Hi||go");
  const options = { addGenerationPrompt: false, tools: [{ name: "sum" }], variables: { mood: 7 } };
  expect((await model.applyTemplate(messages, options)).text).toBe("Hi|sum|7");
});

test("log-probabilities of the draw: what the sampler's steps left, and nothing else", async () => {
  const options = { logprobs: 50, logprobsOf: "sampler" as const, topK: 4, maxTokens: 3, seed: 5 };
  for (const { id, logprob, top } of await events("Once upon a", { ...options, temperature: 3 })) {
    expect(top!.length).toBeLessThanOrEqual(4);
    expect(top!.reduce((sum, one) => sum + Math.exp(one.logprob), 0)).toBeCloseTo(1, 6);
    expect(top!.find((one) => one.id === id)!.logprob).toBe(logprob);
    expect(top!.map((one) => one.logprob)).toEqual(
      top!.map((one) => one.logprob).sort((a, b) => b - a),
    );
  }
  const [sure] = await events("Once upon a", { ...options, temperature: 0 });
  expect(sure).toMatchObject({ logprob: 0, top: [{ id: sure!.id, logprob: 0 }] });
});
