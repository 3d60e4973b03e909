// OpenAI's own client against the server: chat, streams, completions, responses, models, errors, aborts.

import OpenAI, { APIUserAbortError, BadRequestError, NotFoundError } from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  all,
  modelId,
  prompt,
  serveModel,
  type TestServer,
  testServer,
  until,
} from "./test-server.ts";

let running: TestServer;
let client: OpenAI;
/** What the engine says by itself, greedily. */
let expected: string;
let firstId: number;

const greedy = { temperature: 0, max_tokens: 12 };
const messages = [{ role: "user" as const, content: prompt }];

beforeAll(async () => {
  running = await testServer();
  client = new OpenAI({
    apiKey: "none",
    baseURL: `${running.server.url}/v1`,
    maxRetries: 0,
  });
  const { result } = running.model.generate(prompt, { temperature: 0, maxTokens: 12 });
  expected = (await result).text;
  firstId = (await result).tokenIds[0]!;
});

afterAll(async () => {
  await running.close();
  expect(running.log).toEqual([]);
});

describe("chat", () => {
  test("answers what the engine would", async () => {
    const answer = await client.chat.completions.create({ model: modelId, messages, ...greedy });
    expect(answer.choices).toHaveLength(1);
    expect(answer.choices[0]!.message).toMatchObject({ role: "assistant", content: expected });
    expect(answer.choices[0]!.finish_reason).toBe("length");
    expect(answer.usage).toMatchObject({
      prompt_tokens: 5,
      completion_tokens: 12,
      total_tokens: 17,
    });
    expect(answer.model).toBe(modelId);
    expect(answer).toHaveProperty("timings.predicted_n", 12);
  });

  test("streams the same, with usage at the end", async () => {
    const stream = await client.chat.completions.create({
      model: modelId,
      messages,
      ...greedy,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    let chunks = 0;
    let usage: OpenAI.CompletionUsage | null | undefined;
    const reasons: unknown[] = [];
    for await (const chunk of stream) {
      chunks++;
      text += chunk.choices[0]?.delta.content ?? "";
      const reason = chunk.choices[0]?.finish_reason;
      if (reason) reasons.push(reason);
      usage = chunk.usage ?? usage;
    }
    expect(text).toBe(expected);
    expect(chunks).toBeGreaterThan(10);
    expect(reasons).toEqual(["length"]);
    expect(usage).toMatchObject({ prompt_tokens: 5, completion_tokens: 12 });
  });

  test("what was read before is not read again, and usage says so", async () => {
    const content = "A girl and her dog went to the park. They played with a big red ball. ".repeat(
      3,
    );
    const ask = () =>
      client.chat.completions.create({
        model: modelId,
        messages: [{ role: "user", content }],
        ...greedy,
      });
    const first = await ask();
    const second = await ask();
    expect(first.usage!.prompt_tokens_details!.cached_tokens).toBeLessThan(32);
    expect(second.usage!.prompt_tokens_details!.cached_tokens).toBeGreaterThanOrEqual(32);
    expect(second.usage!.prompt_tokens).toBe(first.usage!.prompt_tokens);
    expect(second.choices[0]!.message.content).toBe(first.choices[0]!.message.content);
  });

  test("n choices differ by seed, and repeat with it", async () => {
    const ask = async () => {
      const options = { n: 3, seed: 5, temperature: 1.5, max_tokens: 8 };
      const { choices, usage } = await client.chat.completions.create({
        model: modelId,
        messages,
        ...options,
      });
      expect(usage).toMatchObject({ prompt_tokens: 5, completion_tokens: 24 });
      return choices.map(({ message }) => message.content);
    };
    const first = await ask();
    expect(new Set(first).size).toBeGreaterThan(1);
    expect(await ask()).toEqual(first);
  });

  test("log-probabilities: the chosen token and the best ones", async () => {
    const { choices } = await client.chat.completions.create({
      model: modelId,
      messages,
      ...greedy,
      logprobs: true,
      top_logprobs: 2,
    });
    const content = choices[0]!.logprobs!.content!;
    expect(content.map(({ token }) => token).join("")).toBe(expected);
    for (const { token, logprob, bytes, top_logprobs } of content) {
      expect(logprob).toBeLessThanOrEqual(0);
      expect(top_logprobs).toHaveLength(2);
      expect(top_logprobs[0]).toMatchObject({ token, logprob }); // greedy takes the best
      expect(new TextDecoder().decode(new Uint8Array(bytes!))).toBe(token);
    }
  });

  test("stop strings, logit bias and system messages arrive at the engine", async () => {
    const word = expected.trim().split(" ")[2]!;
    const stopped = await client.chat.completions.create({
      model: modelId,
      messages,
      ...greedy,
      stop: [word],
    });
    expect(stopped.choices[0]!.message.content).toBe(expected.slice(0, expected.indexOf(word)));
    expect(stopped.choices[0]!.finish_reason).toBe("stop");

    const biased = await client.chat.completions.create({
      model: modelId,
      messages,
      ...greedy,
      logit_bias: { [firstId]: -100 },
    });
    expect(biased.choices[0]!.message.content![0]).not.toBe(expected[0]);

    const two = await client.chat.completions.create({
      model: modelId,
      messages: [{ role: "system", content: "A story." }, ...messages],
      ...greedy,
    });
    expect(two.usage!.prompt_tokens).toBeGreaterThan(5);
  });

  test("an abort frees the place", async () => {
    const stream = await client.chat.completions.create({
      model: modelId,
      messages,
      stream: true,
      max_tokens: 240,
    });
    await until("it runs", () => running.server.context.queue.running === 1);
    const reader = stream[Symbol.asyncIterator]();
    await reader.next();
    stream.controller.abort();
    await until("its place is free", () => running.server.context.queue.running === 0);
    expect(running.server.context.jobs.size).toBe(0);

    const gone = new AbortController();
    const whole = client.chat.completions.create(
      { model: modelId, messages, max_tokens: 240 },
      { signal: gone.signal },
    );
    await until("it runs", () => running.server.context.queue.running === 1);
    gone.abort();
    await expect(whole).rejects.toBeInstanceOf(APIUserAbortError);
    await until("its place is free", () => running.server.context.queue.running === 0);
  });
});

describe("completions", () => {
  test("continue a text, token ids, and several of them", async () => {
    const ids = await running.model.tokenize(prompt);
    const one = await client.completions.create({ model: modelId, prompt, ...greedy });
    expect(one.choices[0]).toMatchObject({ text: expected, finish_reason: "length" });
    const two = await client.completions.create({ model: modelId, prompt: [ids, ids], ...greedy });
    expect(two.choices.map(({ text, index }) => [index, text])).toEqual([
      [0, expected],
      [1, expected],
    ]);
    expect(two.usage).toMatchObject({ prompt_tokens: 10, completion_tokens: 24 });
  });

  test("stream, with echo", async () => {
    const stream = await client.completions.create({
      model: modelId,
      prompt,
      ...greedy,
      echo: true,
      stream: true,
    });
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]!.text;
    expect(text).toBe(prompt + expected);
  });

  test("log-probabilities as four lists", async () => {
    const { choices } = await client.completions.create({
      model: modelId,
      prompt,
      ...greedy,
      logprobs: 2,
    });
    const { tokens, token_logprobs, top_logprobs, text_offset } = choices[0]!.logprobs!;
    expect(tokens!.join("")).toBe(expected);
    expect(text_offset!.map((at, i) => expected.slice(at, at + tokens![i]!.length))).toEqual(
      tokens,
    );
    expect(token_logprobs).toHaveLength(12);
    for (const [i, top] of top_logprobs!.entries()) {
      expect(Math.max(...Object.values(top))).toBe(token_logprobs![i]);
    }
  });
});

describe("responses", () => {
  test("answer, and stream every event that the client knows", async () => {
    const options = { temperature: 0, max_output_tokens: 12 };
    const answer = await client.responses.create({ model: modelId, input: prompt, ...options });
    expect(answer.output_text).toBe(expected);
    expect(answer.status).toBe("incomplete");
    expect(answer.incomplete_details).toEqual({ reason: "max_output_tokens" });
    expect(answer.usage).toMatchObject({ input_tokens: 5, output_tokens: 12 });

    const stream = client.responses.stream({ model: modelId, input: prompt, ...options });
    const types: string[] = [];
    let text = "";
    for await (const event of stream) {
      types.push(event.type);
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    expect(text).toBe(expected);
    expect(types.slice(0, 4)).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
    ]);
    expect(types.slice(-4)).toEqual([
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.incomplete",
    ]);
    expect((await stream.finalResponse()).output_text).toBe(expected);
  });

  test("take a conversation and instructions", async () => {
    const answer = await client.responses.create({
      model: modelId,
      instructions: "Tell a story.",
      input: [
        { role: "user", content: [{ type: "input_text", text: prompt }] },
        { role: "assistant", content: ", there" },
      ],
      max_output_tokens: 2,
    });
    expect(answer.usage!.output_tokens).toBe(2);
  });

  test("refuse what they do not do, by name", async () => {
    const ask = (fields: object) =>
      client.responses.create({ model: modelId, input: prompt, ...fields } as never);
    const output = { type: "function_call_output", call_id: "1", output: "7" };
    await expect(ask({ input: [output] })).rejects.toThrow(/no function_call before it/);
    const long = "word ".repeat(400);
    await expect(ask({ input: long })).rejects.toMatchObject({
      code: "context_length_exceeded",
      param: "input",
    });
  });
});

describe("embeddings", () => {
  test("come as base64 and as numbers, the same", async () => {
    const input = [prompt, "The dog ran."];
    const own = await running.model.embed(input);
    const coded = await client.embeddings.create({ model: modelId, input }); // the client asks for base64
    const plain = await client.embeddings.create({
      model: modelId,
      input,
      encoding_format: "float",
    });
    expect(coded.data.map(({ index }) => index)).toEqual([0, 1]);
    for (const [at, { vector }] of own.entries()) {
      expect(coded.data[at]!.embedding).toEqual([...vector]);
      expect(plain.data[at]!.embedding).toEqual([...vector]);
    }
    const tokens = own[0]!.tokens + own[1]!.tokens;
    expect(coded.usage).toEqual({ prompt_tokens: tokens, total_tokens: tokens });
  });

  test("of token ids, pooled by the last", async () => {
    const ids = await running.model.tokenize(prompt);
    const [own] = await running.model.embed([prompt], { pooling: "last" });
    const body = { model: modelId, input: ids, pooling: "last" };
    const { data } = await client.embeddings.create(body);
    expect(data).toHaveLength(1);
    expect(data[0]!.embedding).toEqual([...own!.vector]);
  });

  test("texts are never shortened, vectors if they are asked to be", async () => {
    const ask = (fields: object) =>
      client.embeddings.create({ model: modelId, input: prompt, ...fields });
    expect((await ask({ dimensions: 16 })).data[0]!.embedding).toHaveLength(16);
    await expect(ask({ dimensions: 289 })).rejects.toThrow(/dimensions: .* from 1 to 288/);
    await expect(ask({ input: ["word ".repeat(400)] })).rejects.toMatchObject({
      code: "context_length_exceeded",
      param: "input",
    });
    await expect(ask({ input: [] })).rejects.toBeInstanceOf(BadRequestError);
    await expect(ask({ input: [-1] })).rejects.toBeInstanceOf(BadRequestError);
  });
});

describe("models", () => {
  test("are listed and found", async () => {
    const list = await all(client.models.list());
    expect(list.map(({ id }) => id)).toEqual([modelId]);
    expect(await client.models.retrieve(modelId)).toMatchObject({ id: modelId, object: "model" });
  });

  test("a single one answers to any name, and says its own", async () => {
    const answer = await client.chat.completions.create({ model: "gpt-9", messages, ...greedy });
    expect(answer.model).toBe(modelId);
  });

  test("that are not served are a 404 that names those that are", async () => {
    const server = await serveModel(running.model, running.log, { strictModel: true });
    const strict = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
    const error = await strict.chat.completions
      .create({ model: "gpt-9", messages })
      .catch((e: unknown) => e);
    await server.stop();
    expect(error).toBeInstanceOf(NotFoundError);
    expect(error).toMatchObject({ code: "model_not_found", param: "model" });
    expect((error as Error).message).toContain(modelId);
    await expect(client.models.retrieve("a/b")).rejects.toBeInstanceOf(NotFoundError);
  });
});

describe("what is refused", () => {
  const refused = async (fields: object): Promise<InstanceType<typeof BadRequestError>> => {
    const body = { model: modelId, messages, ...fields } as never;
    const error = await client.chat.completions.create(body).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(BadRequestError);
    return error as InstanceType<typeof BadRequestError>;
  };

  test.each([
    ["tools", { tools: [{ type: "function", function: { name: "f" } }] }],
    ["response_format.type", { response_format: { type: "yaml" } }],
    ["audio", { audio: { voice: "alloy", format: "wav" } }],
    ["stream_options", { stream_options: { include_usage: true } }],
    ["n", { n: 100 }],
  ])("%s, by name", async (name, fields) => {
    const error = await refused(fields);
    expect(error.param).toBe(name);
    expect(error.message).toContain(`"${name}"`);
  });

  test("fields that change nothing pass", async () => {
    const { choices } = await client.chat.completions.create({
      model: modelId,
      messages,
      ...greedy,
      user: "me",
      metadata: { a: "b" },
      prompt_cache_retention: "24h",
      store: false,
      n: 1,
      response_format: { type: "text" },
      tools: [],
      stop: null,
      seed: null,
    });
    expect(choices[0]!.message.content).toBe(expected);
  });

  test("a prompt that does not fit, with both numbers", async () => {
    const content = "word ".repeat(400);
    const error = await refused({ messages: [{ role: "user", content }] });
    expect(error).toMatchObject({ code: "context_length_exceeded", param: "messages" });
    const tokens = (await running.model.tokenize(content)).length;
    expect(error.message).toContain(String(tokens));
    expect(error.message).toContain(String(running.model.info.contextSize));
  });

  test("a prompt that fits runs into the end of the context, and says length", async () => {
    const content = "Once upon a time there was a dog. ".repeat(24);
    const ids = await running.model.tokenize(content);
    const { choices, usage } = await client.chat.completions.create({
      model: modelId,
      messages: [{ role: "user", content }],
      ...{ ignore_eos: true },
    });
    expect(choices[0]!.finish_reason).toBe("length");
    expect(usage!.prompt_tokens).toBe(ids.length);
    expect(usage!.total_tokens).toBeGreaterThanOrEqual(running.model.info.contextSize);
  });
});
