// Requests that are too much: refused by their size or their counts, before the model is asked for anything.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Model } from "../../src/index.ts";
import { modelId, post, serveModel, type TestServer, testServer } from "./test-server.ts";

let running: TestServer;
let url: string;
let stop: () => Promise<void>;
/** What was asked of the model's tokenizer. */
let asked: string[] = [];

/** The model, with a list of what its tokenizer is asked. */
function watched(model: Model): Model {
  const names = ["tokenize", "countTokens", "detokenize", "tokenPieces", "applyTemplate"] as const;
  return new Proxy(model, {
    get(target, name) {
      const value = Reflect.get(target, name, target) as unknown;
      if (typeof value !== "function") return value;
      return (...args: unknown[]) => {
        if ((names as readonly string[]).includes(String(name))) asked.push(String(name));
        return value.apply(target, args);
      };
    },
  });
}

beforeAll(async () => {
  running = await testServer();
  const server = await serveModel(watched(running.model), running.log);
  url = server.url;
  stop = () => server.stop();
});

afterAll(async () => {
  await stop();
  await running.close();
  expect(running.log).toEqual([]);
});

beforeEach(() => {
  asked = [];
});

async function refused(path: string, body: unknown): Promise<string> {
  const response = await post(url + path, body);
  const text = await response.text();
  expect([response.status, text]).toEqual([400, expect.any(String)]);
  return text;
}

const many = <T>(item: T, count: number): T[] => Array(count).fill(item) as T[];

describe("too many", () => {
  test.each([
    ["prompts", "/v1/completions", { prompt: many("a", 5000) }],
    ["prompts for the queue", "/v1/completions", { prompt: many("a", 600) }],
    ["lists of tokens", "/v1/completions", { prompt: many([1], 5000) }],
    ["texts to embed", "/v1/embeddings", { input: many("a", 5000) }],
    ["texts to embed", "/api/embed", { model: modelId, input: many("a", 5000) }],
    ["messages", "/v1/chat/completions", { messages: many({}, 20_000) }],
    ["messages", "/v1/messages", { model: modelId, max_tokens: 1, messages: many({}, 20_000) }],
    ["messages", "/api/chat", { model: modelId, messages: many({}, 20_000) }],
    ["messages", "/apply-template", { messages: many({}, 20_000) }],
    [
      "parts",
      "/v1/chat/completions",
      { messages: [{ role: "user", content: many({ type: "text", text: "" }, 20_000) }] },
    ],
  ])("%s: %s", async (_, path, body) => {
    expect(await refused(path, body)).toMatch(/at most|room for/);
    expect(asked).toEqual([]);
  });

  test.each([
    ["numbers", "/detokenize", `{"tokens":[${"1,".repeat(1_100_000)}1]}`],
    ["objects", "/v1/chat/completions", `{"messages":[${"{},".repeat(200_000)}{}]}`],
    ["lists", "/v1/chat/completions", `{"messages":${"[".repeat(300)}`],
  ])("%s, before they are parsed", async (_, path, body) => {
    expect(await refused(path, body)).toMatch(/too many values|nested lists/);
    expect(asked).toEqual([]);
  });
});

describe("too long", () => {
  // The longest token of this vocabulary has 16 letters, and the context 256 tokens.
  const text = "word ".repeat(2000);

  test("is refused by its length", async () => {
    const error = await refused("/completion", { prompt: text });
    expect(error).toMatch(/at least \d+ tokens.*256 tokens/);
    expect(asked).toEqual([]);
    expect(await refused("/v1/embeddings", { input: text })).toMatch(/at least \d+/);
    expect(asked).toEqual([]);
  });

  test("but for a conversation, which its template may shorten, by what becomes of it", async () => {
    const messages = [{ role: "user", content: text }];
    expect(await refused("/v1/chat/completions", { messages })).toMatch(/at least \d+/);
    expect(asked).not.toContain("tokenize");
  });

  test("is counted all the same", async () => {
    const messages = [{ role: "user", content: text }];
    const body = { model: modelId, messages };
    const response = await post(`${url}/v1/messages/count_tokens`, body);
    const tokens = await running.model.tokenize(text);
    expect(await response.json()).toEqual({ input_tokens: tokens.length });
  });
});

describe("/tokenize", () => {
  test("lists long texts in pieces of an answer, and their pieces in one call", async () => {
    const content = "Once upon a time é ".repeat(1000);
    const tokens = await running.model.tokenize(content, { addBos: false });
    const plain = await post(`${url}/tokenize`, { content });
    expect(await plain.json()).toEqual({ tokens });
    asked = [];
    const response = await post(`${url}/tokenize`, { content, with_pieces: true });
    const listed = (await response.json()) as {
      tokens: { id: number; piece: string | number[] }[];
    };
    expect(listed.tokens.map(({ id }) => id)).toEqual(tokens);
    expect(listed.tokens.slice(0, 4).map(({ piece }) => piece)).toEqual([
      " Once",
      " upon",
      " a",
      " time",
    ]);
    expect(asked).toEqual(["tokenize", "tokenPieces"]);
  });

  test("a part of a character is its bytes", async () => {
    const response = await post(`${url}/tokenize`, { content: "𓀀", with_pieces: true });
    const { tokens } = (await response.json()) as { tokens: { piece: unknown }[] };
    expect(tokens.map(({ piece }) => piece)).toEqual([" ", [0xf0], [0x93], [0x80], [0x80]]);
  });
});
