// Grammars in requests: OpenAI's response_format and text.format, llama.cpp's grammar, json_schema and triggers, Ollama's format.
// The model is a real one of 15M parameters that writes stories: without a grammar it never writes JSON.

import { Ollama } from "ollama";
import OpenAI, { BadRequestError } from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { type SpokenModel, spokenModel } from "./spoken-model.ts";
import { modelId, post, serveModel, type TestServer, testServer } from "./test-server.ts";

const Cat = z.object({
  name: z.string().max(8),
  age: z.int().min(0).max(30),
  colors: z
    .array(z.enum(["black", "white"]))
    .min(1)
    .max(2),
});
const schema = z.toJSONSchema(Cat) as Record<string, unknown>;
const messages = [{ role: "user" as const, content: "A cat as JSON" }];
const usual = { model: modelId, max_tokens: 120, temperature: 0 };

let running: TestServer;
let client: OpenAI;
let url: string;
beforeAll(async () => {
  running = await testServer();
  url = running.server.url;
  client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
});
afterAll(async () => {
  await running.close();
  expect(running.log).toEqual([]);
});

const isCat = (text: string | null | undefined): boolean =>
  Cat.safeParse(JSON.parse(text ?? "")).success;

describe("/v1/chat/completions", () => {
  test("response_format json_schema, through the client's own parser", async () => {
    const { choices } = await client.chat.completions.parse({
      ...usual,
      messages,
      response_format: zodResponseFormat(Cat, "cat"),
    });
    expect(choices[0]!.message.parsed!.colors.length).toBeGreaterThan(0);
    expect(choices[0]!.finish_reason).toBe("stop");
  });

  test("a header names what of a schema is not enforced", async () => {
    const ask = async (tags: object): Promise<string | null> => {
      const object = { type: "object", properties: { tags }, required: ["tags"] };
      const response_format = { type: "json_schema", json_schema: { name: "x", schema: object } };
      const response = await post(`${url}/v1/chat/completions`, {
        ...{ ...usual, messages, response_format, max_tokens: 4 },
      });
      expect(response.status).toBe(200);
      await response.json();
      return response.headers.get("x-lantern-schema-notes");
    };
    const items = { type: "array", maxItems: 2, items: { type: "string", maxLength: 3 } };
    expect(await ask(items)).toBeNull();
    expect(await ask({ ...items, uniqueItems: true })).toMatch(
      /^#\/properties\/tags\/uniqueItems: /,
    );
    const json_schema = { ...items, uniqueItems: true };
    for (const [path, body] of [
      ["/completion", { prompt: "a", n_predict: 2, json_schema }],
      ["/v1/completions", { prompt: "a", max_tokens: 2, json_schema }],
      ["/api/generate", { prompt: "a", raw: true, stream: false, format: json_schema }],
    ] as const) {
      const response = await post(url + path, { model: modelId, ...body });
      expect(response.status, await response.text()).toBe(200);
      expect(response.headers.get("x-lantern-schema-notes"), path).toMatch(/^#\/uniqueItems: /);
    }
  });

  test("streamed, and several choices with a seed", async () => {
    const body = { ...usual, messages, response_format: zodResponseFormat(Cat, "cat") };
    const parts = ["", "", ""];
    const stream = await client.chat.completions.create({
      ...body,
      temperature: 1,
      seed: 1,
      n: 3,
      stream: true,
    });
    for await (const { choices } of stream) {
      for (const { index, delta } of choices) parts[index] += delta.content ?? "";
    }
    expect(parts.map(isCat)).toEqual([true, true, true]);
    expect(new Set(parts).size).toBeGreaterThan(1);
  });

  test("json_object: any object, or one of a schema", async () => {
    const ask = async (response_format: object): Promise<string | null> => {
      const body = { ...usual, messages, response_format, max_tokens: 120 } as never;
      return (await client.chat.completions.create(body)).choices[0]!.message.content;
    };
    expect(await ask({ type: "json_object" })).toMatch(/^\{/);
    expect(isCat(await ask({ type: "json_object", schema }))).toBe(true);
  });

  test.each([
    [
      { type: "json_schema", json_schema: { name: "a", schema: { $dynamicRef: "#a" } } },
      /\$dynamicRef/,
    ],
    [
      {
        type: "json_schema",
        json_schema: { name: "a", schema: { properties: { x: { type: "strnig" } } } },
      },
      /properties\/x\/type.*strnig|properties\/x.*type/,
    ],
    [{ type: "json_schema" }, /json_schema/],
    [{ type: "yaml" }, /response_format/],
  ])("400 for %j", async (response_format, message) => {
    for (const stream of [false, true]) {
      const body = { ...usual, messages, response_format, stream } as never;
      const error = await client.chat.completions.create(body).catch((e: unknown) => e);
      expect(error).toBeInstanceOf(BadRequestError);
      expect((error as Error).message).toMatch(message);
      expect((error as InstanceType<typeof BadRequestError>).param).toMatch(/^response_format/);
    }
  });

  test("llama.cpp's grammar", async () => {
    const body = { ...usual, messages, grammar: 'root ::= "a" [bc]{4} "d"' } as never;
    const { choices } = await client.chat.completions.create(body);
    expect(choices[0]!.message.content).toMatch(/^a[bc]{4}d$/);
    const both = {
      ...usual,
      messages,
      grammar: "root ::= [a]",
      response_format: { type: "json_object" },
    };
    await expect(client.chat.completions.create(both as never)).rejects.toThrow(
      /cannot be used together/,
    );
  });
});

test("/v1/responses: text.format, through the client's own parser", async () => {
  const body = { model: modelId, temperature: 0, input: "A cat as JSON" };
  const response = await client.responses.parse({
    ...body,
    text: { format: zodTextFormat(Cat, "cat") },
  });
  expect(response.output_parsed!.age).toBeGreaterThanOrEqual(0);
  expect(response.text!.format).toMatchObject({ type: "json_schema", name: "cat" });
  const bad = {
    ...body,
    text: { format: { type: "json_schema", name: "a", schema: { $dynamicRef: "#" } } },
  };
  const error = await client.responses.create(bad as never).catch((e: unknown) => e);
  expect((error as InstanceType<typeof BadRequestError>).param).toBe("text.format.schema");
});

describe("/completion", () => {
  const ask = async (fields: object): Promise<Record<string, unknown>> => {
    const body = { prompt: "Once upon a time", temperature: 0, n_predict: 100, ...fields };
    const response = await post(`${url}/completion`, body);
    return (await response.json()) as Record<string, unknown>;
  };

  test("grammar and json_schema", async () => {
    const answer = await ask({ grammar: 'root ::= " there" [a-z ]{3} "!"' });
    expect(answer.content).toMatch(/^ there[a-z ]{3}!$/);
    expect(answer.stop_type).toBe("eos");
    expect(answer.generation_settings).toMatchObject({
      grammar: 'root ::= " there" [a-z ]{3} "!"',
    });
    expect(isCat((await ask({ json_schema: schema })).content as string)).toBe(true);
    expect(await ask({ grammar: "root ::= x" })).toMatchObject({
      error: { param: "grammar", message: expect.stringMatching(/line 1, column 10: the rule x/) },
    });
  });

  test("a lazy grammar begins at its trigger", async () => {
    const free = (await ask({ n_predict: 30 })).content as string;
    const word = free.split(" ")[6]!;
    const grammar = `root ::= "${word}" "X"{3}`;
    const lazy = { grammar, grammar_lazy: true, preserved_tokens: [] };
    const answer = await ask({ ...lazy, grammar_triggers: [{ type: 1, value: word }] });
    expect(answer.content).toBe(`${free.slice(0, free.indexOf(word) + word.length)}XXX`);
    expect(await ask(lazy)).toMatchObject({ error: { param: "grammar_triggers" } });
    // By a pattern, it begins with the first group; a whole pattern is of the text so far.
    const escaped = word.replace(/[^a-z]/gi, "\\$&");
    for (const trigger of [
      { type: 2, value: `\\s(${escaped})` },
      { type: 3, value: `[^]*(${escaped})` },
    ]) {
      const { content } = await ask({ ...lazy, grammar_triggers: [trigger] });
      expect(content).toBe(answer.content);
    }
    const wrong = { ...lazy, grammar_triggers: [{ type: 2, value: "(" }] };
    expect(await ask(wrong)).toMatchObject({
      error: { code: "invalid_value", message: expect.stringContaining("a ( without its )") },
    });
    expect(await ask({ ...lazy, grammar_triggers: [{ type: 3 }] })).toMatchObject({
      error: { message: expect.stringContaining("grammar_triggers[0]") },
    });
  });
});

test("Ollama's format", async () => {
  const ollama = new Ollama({ host: url });
  const options = { temperature: 0, num_predict: 120 };
  const chat = await ollama.chat({ model: modelId, messages, format: schema, options });
  expect(isCat(chat.message.content)).toBe(true);
  const plain = await ollama.generate({
    model: modelId,
    prompt: "A cat",
    format: "json",
    raw: true,
    options,
  });
  expect(plain.response).toMatch(/^\{/);
  const wrong = ollama.chat({ model: modelId, messages, format: { $dynamicRef: "#" } });
  await expect(wrong).rejects.toThrow(/"format".*\$dynamicRef/);
});

describe("a model that reasons", () => {
  let spoken: SpokenModel;
  let thinker: OpenAI;
  let close: () => Promise<void>;
  beforeAll(async () => {
    spoken = await spokenModel();
    const server = await serveModel(spoken.model, []);
    thinker = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
    close = async () => {
      await server.stop();
      await spoken.close();
    };
  });
  afterAll(async () => await close());

  test("has a grammar for its answer, not for its reasoning", async () => {
    spoken.words = ['<think>\nHm.\n</think>\n\n{"a": 1}'];
    const body = { ...usual, messages, response_format: { type: "json_object" as const } };
    const { choices } = await thinker.chat.completions.create(body);
    expect(choices[0]!.message).toMatchObject({ content: '{"a": 1}', reasoning_content: "Hm." });
    expect(spoken.options.grammar).toMatchObject({
      reasoning: {
        start: expect.stringContaining("<think>"),
        end: expect.stringContaining("</think>"),
      },
      content: { schema: { type: "object" } },
    });
  });

  test("cannot have tools and a grammar at once, unless it is a schema", async () => {
    const tools = [{ type: "function", function: { name: "f" } }];
    const body = { ...usual, messages, tools, grammar: 'root ::= "a"' } as never;
    await expect(thinker.chat.completions.create(body)).rejects.toThrow(/together with tools/);
  });
});

test("a server's own grammar, and a request that has another", async () => {
  const sampling = { grammar: { choices: ["black", "white"] } };
  const server = await serveModel(running.model, running.log, { sampling });
  const ask = async (fields: object): Promise<unknown> => {
    const response = await post(`${server.url}/completion`, { prompt: "A", ...fields });
    return ((await response.json()) as { content: unknown }).content;
  };
  expect(["black", "white"]).toContain(await ask({}));
  expect(await ask({ grammar: 'root ::= "red"' })).toBe("red");
  await server.stop();
});
