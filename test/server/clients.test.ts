// Other people's clients against the server: the AI SDK, LangChain, Ollama's and Anthropic's. Each knows its protocol
// better than we do: what it cannot parse, it throws on.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic, { BadRequestError, NotFoundError } from "@anthropic-ai/sdk";
import { HumanMessage, SystemMessage } from "@langchain/core/messages";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { generateText, streamText } from "ai";
import { Ollama } from "ollama";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { all, modelId, prompt, type TestServer, testServer, until } from "./test-server.ts";

let running: TestServer;
let url: string;
let expected: string;
const maxTokens = 12;

beforeAll(async () => {
  running = await testServer({ strictModel: true });
  url = running.server.url;
  const { result } = running.model.generate(prompt, { temperature: 0, maxTokens });
  expected = (await result).text;
});

afterAll(async () => {
  await running.close();
  expect(running.log).toEqual([]);
});

describe("ai + @ai-sdk/openai-compatible", () => {
  const model = () =>
    createOpenAICompatible({ name: "lantern", baseURL: `${url}/v1`, includeUsage: true })(modelId);

  test("generateText", async () => {
    const { text, usage, finishReason } = await generateText({
      model: model(),
      prompt,
      temperature: 0,
      maxOutputTokens: maxTokens,
    });
    expect(text).toBe(expected);
    expect(finishReason).toBe("length");
    expect(usage).toMatchObject({ inputTokens: 5, outputTokens: maxTokens });
  });

  test("streamText", async () => {
    const answer = streamText({
      model: model(),
      prompt,
      temperature: 0,
      maxOutputTokens: maxTokens,
    });
    const pieces = await all(answer.textStream);
    expect(pieces.join("")).toBe(expected);
    expect(pieces.length).toBeGreaterThan(5);
    expect(await answer.usage).toMatchObject({ inputTokens: 5, outputTokens: maxTokens });
  });
});

describe("@langchain/openai", () => {
  const model = () =>
    new ChatOpenAI({
      model: modelId,
      apiKey: "none",
      temperature: 0,
      maxTokens,
      maxRetries: 0,
      configuration: { baseURL: `${url}/v1` },
    });

  test("invoke", async () => {
    const answer = await model().invoke([new HumanMessage(prompt)]);
    expect(answer.content).toBe(expected);
    expect(answer.usage_metadata).toMatchObject({ input_tokens: 5, output_tokens: maxTokens });
  });

  test("stream, with a system message", async () => {
    const messages = [new SystemMessage("A story."), new HumanMessage(prompt)];
    let text = "";
    for await (const chunk of await model().stream(messages)) text += chunk.content;
    const whole = await model().invoke(messages);
    expect(text).toBe(whole.content);
    expect(text).not.toBe("");
  });
});

test("@langchain/openai: embeddings", async () => {
  const embeddings = new OpenAIEmbeddings({
    model: modelId,
    apiKey: "none",
    configuration: { baseURL: `${url}/v1` },
  });
  const [own] = await running.model.embed([prompt]);
  expect(await embeddings.embedQuery(prompt)).toEqual([...own!.vector]);
});

describe("ollama", () => {
  const client = () => new Ollama({ host: url });
  const options = { temperature: 0, num_predict: maxTokens };
  const messages = [{ role: "user", content: prompt }];

  test("chat, whole and streamed", async () => {
    const whole = await client().chat({ model: modelId, messages, options });
    expect(whole.message).toMatchObject({ role: "assistant", content: expected });
    expect(whole).toMatchObject({
      done: true,
      done_reason: "length",
      prompt_eval_count: 5,
      eval_count: maxTokens,
    });
    expect(whole.eval_duration).toBeGreaterThan(0);
    let text = "";
    let last: unknown;
    for await (const part of await client().chat({
      model: `${modelId}:latest`,
      messages,
      options,
      stream: true,
    })) {
      text += part.message.content;
      last = part;
    }
    expect(text).toBe(expected);
    expect(last).toMatchObject({ done: true, eval_count: maxTokens });
  });

  test("generate, whole and streamed", async () => {
    const whole = await client().generate({ model: modelId, prompt, options });
    expect(whole.response).toBe(expected);
    const stream = await client().generate({
      model: modelId,
      prompt,
      raw: true,
      options,
      stream: true,
    });
    const parts = await all(stream);
    expect(parts.map(({ response }) => response).join("")).toBe(expected);
  });

  test("embed", async () => {
    const input = [prompt, "The dog ran."];
    const own = await running.model.embed(input);
    const answer = await client().embed({ model: modelId, input });
    expect(answer.embeddings).toEqual(own.map(({ vector }) => [...vector]));
    const old = await client().embeddings({ model: modelId, prompt });
    expect(old.embedding).toEqual([...own[0]!.vector]);
  });

  test("an abort frees the place", async () => {
    const api = client();
    const stream = await api.generate({
      model: modelId,
      prompt,
      stream: true,
      options: { num_predict: 240 },
    });
    const failed = (async () => {
      for await (const _ of stream) api.abort();
    })().catch((error: unknown) => error);
    expect(await failed).toMatchObject({ name: "AbortError" });
    await until("its place is free", () => running.server.context.queue.running === 0);
  });

  test("what there is", async () => {
    const { models } = await client().list();
    expect(models.map(({ name }) => name)).toEqual([modelId]);
    expect((await client().ps()).models[0]).toMatchObject({ model: modelId });
    const shown = await client().show({ model: modelId });
    expect(shown.details).toMatchObject({ family: "llama", quantization_level: "F32" });
    expect(await client().version()).toEqual({ version: "test" });
  });

  test("what is refused says so in its error", async () => {
    const ask = (more: object) => client().chat({ model: modelId, messages, ...more });
    await expect(ask({ options: { mirostat: 3 } })).rejects.toThrow(/options.mirostat/);
    await expect(ask({ options: { temperature: -1 } })).rejects.toThrow(/options.temperature/);
    await expect(
      ask({ messages: [{ role: "user", content: "?", images: ["aGk="] }] }),
    ).rejects.toThrow(/"messages\[0\].images" is not supported/);
    await expect(ask({ model: "other" })).rejects.toThrow(/"other" is not served here/);
    const raw = client().generate({ model: modelId, prompt, raw: true, system: "Be brief." });
    await expect(raw).rejects.toThrow(/"system" is not supported: together with raw/);
  });
});

describe("@anthropic-ai/sdk", () => {
  const client = () => new Anthropic({ apiKey: "none", baseURL: url, maxRetries: 0 });
  const messages = [{ role: "user" as const, content: prompt }];
  const request = { model: modelId, max_tokens: maxTokens, temperature: 0, messages };

  test("messages", async () => {
    const answer = await client().messages.create(request);
    expect(answer.content).toEqual([{ type: "text", text: expected }]);
    expect(answer).toMatchObject({ role: "assistant", stop_reason: "max_tokens", type: "message" });
    const { input_tokens, cache_read_input_tokens, output_tokens } = answer.usage;
    expect([input_tokens + cache_read_input_tokens!, output_tokens]).toEqual([5, maxTokens]);
  });

  test("stream, with the helpers that put events together", async () => {
    const stream = client().messages.stream(request);
    const types: string[] = [];
    let text = "";
    stream.on("text", (delta) => {
      text += delta;
    });
    for await (const event of stream) types.push(event.type);
    expect(text).toBe(expected);
    expect(types.filter((type, at) => type !== types[at - 1])).toEqual([
      "message_start",
      "content_block_start",
      "content_block_delta",
      "content_block_stop",
      "message_delta",
      "message_stop",
    ]);
    const message = await stream.finalMessage();
    expect(message.content).toEqual([{ type: "text", text: expected }]);
    expect(message.stop_reason).toBe("max_tokens");
    expect(message.usage).toMatchObject({ output_tokens: maxTokens });
  });

  test("stop sequences, system text, and an answer that has begun", async () => {
    const word = expected.trim().split(" ")[2]!;
    const answer = await client().messages.create({ ...request, stop_sequences: [word] });
    expect(answer).toMatchObject({ stop_reason: "stop_sequence", stop_sequence: word });
    const begun = await client().messages.create({
      ...request,
      system: [{ type: "text", text: "A story." }],
      messages: [...messages, { role: "assistant", content: ", there" }],
    });
    const { input_tokens, cache_read_input_tokens } = begun.usage;
    expect(input_tokens + cache_read_input_tokens!).toBeGreaterThan(5);
  });

  test("tools that there are none of may be chosen freely", async () => {
    const choice = (type: "auto" | "any") =>
      client().messages.create({ ...request, tools: [], tool_choice: { type } });
    expect((await choice("auto")).content).toHaveLength(1);
    await expect(choice("any")).rejects.toThrow(/tool_choice/);
  });

  test("countTokens", async () => {
    const { input_tokens } = await client().messages.countTokens({ model: modelId, messages });
    expect(input_tokens).toBe((await running.model.tokenize(prompt)).length);
  });

  test("errors are of the client's own classes", async () => {
    const tools = [{ name: "f", input_schema: { type: "object" as const } }];
    const refused = await client()
      .messages.create({ ...request, tools })
      .catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(BadRequestError);
    expect((refused as Error).message).toContain('\\"tools\\" is not supported');
    await expect(
      client().messages.create({ ...request, model: "claude-9" }),
    ).rejects.toBeInstanceOf(NotFoundError);
    const long = [{ role: "user" as const, content: "word ".repeat(400) }];
    await expect(client().messages.create({ ...request, messages: long })).rejects.toThrow(
      /context size \(256 tokens.*Nothing was cut/,
    );
  });
});
