// Answers in Ollama's form besides tools: log-probabilities, the context that a later prompt follows, long conversations.
// Held against: Ollama's own client and its types, and the same model through the public API.

import { Ollama } from "ollama";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { RunningServer } from "../../apps/server/serve.ts";
import { type Model, open } from "../../src/index.ts";
import { qwenTemplate } from "./spoken-model.ts";
import { all, modelId, post, serveModel } from "./test-server.ts";

let model: Model;
let server: RunningServer;
let client: Ollama;
beforeAll(async () => {
  model = await open(modelId, { threads: 1, chatTemplate: qwenTemplate, parallel: 2 });
  server = await serveModel(model, []);
  client = new Ollama({ host: server.url });
});
afterAll(async () => {
  await server.stop();
  await model.dispose();
});

const options = { temperature: 0, num_predict: 6 };

test("logprobs: of each token, with others that were likely", async () => {
  const asked = { model: modelId, prompt: "Once upon a time", raw: true, options };
  const more = { logprobs: true, top_logprobs: 2 };
  const whole = await client.generate({ ...asked, ...more });
  const { result } = model.generate("Once upon a time", {
    temperature: 0,
    maxTokens: 6,
    logprobs: 2,
  });
  const { tokenIds } = await result;
  expect(whole.logprobs).toHaveLength(tokenIds.length);
  const first = whole.logprobs![0]!;
  expect(first.logprob).toBeLessThanOrEqual(0);
  expect(first.top_logprobs).toHaveLength(2);
  expect(first.top_logprobs![0]).toMatchObject({ token: first.token, logprob: first.logprob });
  const lines = await all(await client.generate({ ...asked, ...more, stream: true }));
  expect(lines.flatMap(({ logprobs = [] }) => logprobs)).toEqual(whole.logprobs);
  expect((await client.generate(asked)).logprobs).toBeUndefined();
  const said = await client.chat({
    ...{ model: modelId, messages: [{ role: "user", content: "Hi" }], options },
    ...more,
  });
  expect(said.logprobs!.map(({ token }) => token).join("")).toBe(said.message.content);
});

test("context: a later prompt follows the earlier one and its answer", async () => {
  const first = await client.generate({ model: modelId, prompt: "A cat sat.", options });
  const again = await client.generate({
    ...{ model: modelId, prompt: "And then?", options, context: first.context },
  });
  const turn = async (text: string): Promise<number[]> =>
    await model.tokenize(
      await model.applyTemplate([{ role: "user", content: text }], { addGenerationPrompt: true }),
    );
  const [one, [bos, ...two]] = [await turn("A cat sat."), await turn("And then?")];
  expect((await model.tokenize(""))[0]).toBe(bos);
  expect(first.context.slice(0, one.length)).toEqual(one);
  expect(again.context.slice(0, first.context.length + two.length)).toEqual([
    ...first.context,
    ...two,
  ]);
  const wrong = { model: modelId, prompt: "x", stream: false, context: [-1] };
  expect((await post(`${server.url}/api/generate`, wrong)).status).toBe(400);
});

test("of a conversation that is too long, the oldest messages are left out, and the answer says how many", async () => {
  const messages = [
    { role: "system", content: "Be kind." },
    ...Array.from({ length: 20 }, (_, at) => ({
      role: at % 2 === 0 ? "user" : "assistant",
      content: `Number ${at} is a sentence of this long conversation.`,
    })),
    { role: "user", content: "Now?" },
  ];
  const url = `${server.url}/api/chat`;
  const body = { model: modelId, messages, options, stream: false };
  const answer = await post(url, body);
  const dropped = Number(answer.headers.get("x-lantern-dropped-messages"));
  expect(answer.status).toBe(200);
  expect(dropped).toBeGreaterThan(5);
  expect(dropped).toBeLessThan(20);
  const { prompt_eval_count: count } = (await answer.json()) as { prompt_eval_count: number };
  expect(count).toBeLessThan(256);
  // As few as possible: with one more message, it would not fit beside an answer.
  const left = (from: number) => [messages[0]!, ...messages.slice(1 + from)];
  const tokens = async (from: number): Promise<number> =>
    (
      await model.tokenize(
        await model.applyTemplate(left(from) as never, { addGenerationPrompt: true }),
      )
    ).length;
  expect(count).toBe(await tokens(dropped));
  expect(await tokens(dropped - 1)).toBeGreaterThan(256 - 6);
  expect((await post(url, { ...body, truncate: false })).status).toBe(400);
  const alone = [{ role: "user", content: "word ".repeat(2000) }];
  const refused = await post(url, { ...body, messages: alone });
  expect([refused.status, await refused.text()]).toMatchObject([400, /exceeds the available/]);
});

test("a length under OpenAI's name", async () => {
  const messages = [{ role: "user", content: "Hi" }];
  const answer = await post(`${server.url}/api/chat`, {
    ...{ model: modelId, messages, stream: false, max_output_tokens: 3 },
    options: { temperature: 0, seed: 1 },
  });
  expect(await answer.json()).toMatchObject({ eval_count: 3, done_reason: "length" });
});
