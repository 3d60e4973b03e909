// `lantern/server` within a process: the clients of OpenAI, Anthropic and Ollama with createFetch() as their fetch, held against what
// the engine says by itself; and serve() on a port.

import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI, { NotFoundError } from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createFetch, serve } from "../../apps/server/index.ts";
import { type Model, open } from "../../src/index.ts";
import { all, prompt } from "./test-server.ts";

let model: Model;
let expected: string;
const host = "http://lantern.invalid"; // never looked up
const messages = [{ role: "user" as const, content: prompt }];

beforeAll(async () => {
  model = await open("stories15m", { threads: 1 });
  expected = (await model.generate(prompt, { temperature: 0, maxTokens: 12 }).result).text;
});

afterAll(() => model.dispose());

test("OpenAI's client: an answer, a stream, a model that is not there", async () => {
  const client = new OpenAI({
    fetch: createFetch({ story: model }),
    baseURL: `${host}/v1`,
    apiKey: "none",
    maxRetries: 0,
  });
  const options = { model: "story", messages, temperature: 0, max_tokens: 12 };
  const answer = await client.chat.completions.create(options);
  expect(answer.choices[0]!.message.content).toBe(expected);
  const chunks = await all(await client.chat.completions.create({ ...options, stream: true }));
  expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("")).toBe(expected);
  expect((await client.models.list()).data.map(({ id }) => id)).toEqual(["story"]);
  await expect(client.models.retrieve("other")).rejects.toThrow(NotFoundError);
});

test("a stream that nobody reads any more ends its generation", async () => {
  const answer = createFetch(model);
  const end = new AbortController();
  const { body } = await answer(`${host}/completion`, {
    method: "POST",
    body: JSON.stringify({ prompt, n_predict: 100_000, ignore_eos: true, stream: true }),
    signal: end.signal,
  });
  const reader = body!.getReader();
  expect((await reader.read()).done).toBe(false);
  end.abort();
  const slots = async () =>
    (await (await answer(`${host}/slots`)).json()) as { is_processing: boolean }[];
  await expect.poll(async () => (await slots()).some((slot) => slot.is_processing)).toBe(false);
});

test("Anthropic's and Ollama's clients; a model has its own name where none is given", async () => {
  const answer = createFetch(model);
  const { name } = model.info;
  const anthropic = new Anthropic({ fetch: answer, baseURL: host, apiKey: "none" });
  const message = await anthropic.messages.create({
    model: name,
    messages,
    max_tokens: 12,
    ...{ temperature: 0 }, // the client's types have none, the protocol has
  });
  expect(message.content).toMatchObject([{ type: "text", text: expected }]);
  const ollama = new Ollama({ fetch: answer, host });
  const chat = await ollama.chat({
    model: name,
    messages,
    options: { temperature: 0, num_predict: 12 },
  });
  expect(chat.message.content).toBe(expected);
});

test("serve() answers on a port until it is stopped, and the model stays open", async () => {
  const server = await serve({ story: model }, { port: 0, apiKeys: ["key"] });
  const ask = (key: string) =>
    fetch(`${server.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  expect((await ask("key")).status).toBe(200);
  expect((await ask("other")).status).toBe(401);
  await server.stop();
  await expect(ask("key")).rejects.toThrow();
  expect((await model.generate(prompt, { temperature: 0, maxTokens: 12 }).result).text).toBe(
    expected,
  );
});
