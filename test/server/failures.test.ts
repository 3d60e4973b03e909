// Failures inside: a model that fails in every possible way, behind the app alone (no socket). Clients get a status
// and a sentence, the log gets the details, and slots are freed.

import { describe, expect, test } from "vitest";
import { type AppFetch, createApp } from "../../apps/server/app.ts";
import { createContext, type ServerContext } from "../../apps/server/context.ts";
import { routeFamilies } from "../../apps/server/routes/table.ts";
import {
  AbortedError,
  ContextError,
  type Generation,
  type GenerationResult,
  type Model,
  type ModelInfo,
  type TokenEvent,
  UsageError,
  WorkerError,
} from "../../src/index.ts";

const here = { address: "127.0.0.1", isLocal: true };

const tokens: TokenEvent[] = [
  { id: 7, text: "hello" },
  { id: 8, text: " you" },
];

const limit = {
  resource: "bandwidth",
  tokensPerSecond: 200,
  fraction: 0.75,
  achievedPerSecond: 15e9,
  possiblePerSecond: 20e9,
} as const;

const result: GenerationResult = {
  text: "hello you",
  promptTokenIds: [1, 2],
  tokenIds: [7, 8],
  stopReason: "end",
  timings: {
    loadMs: 1,
    promptTokens: 2,
    cachedTokens: 1,
    promptMs: 10,
    generatedTokens: 2,
    generatedMs: 20,
    sampledTokens: 2,
    sampleMs: 1,
    totalMs: 31,
    work: {} as GenerationResult["timings"]["work"],
    limits: { prompt: undefined, generation: limit },
  },
};

/** A generation that says two tokens and ends as told. */
function generation(end: () => GenerationResult): Generation {
  const promise = Promise.resolve().then(end);
  promise.catch(() => {});
  async function* read(): AsyncGenerator<TokenEvent> {
    yield* tokens;
    await promise;
  }
  return { tokens: read, result: promise, [Symbol.asyncIterator]: () => textOf(read()) };
}

async function* textOf(events: AsyncIterable<TokenEvent>): AsyncGenerator<string> {
  for await (const { text } of events) yield text;
}

function server(end: () => GenerationResult): {
  app: AppFetch;
  context: ServerContext;
  log: string[];
  ask(path: string, body?: object): Promise<Response>;
} {
  const info = { contextSize: 100, vocabSize: 10, hasChatTemplate: false } as ModelInfo;
  const model = {
    info,
    tokenize: async (text: string) => (text === "" ? [1] : [1, 2]),
    generate: () => generation(end),
    health: async () => ({ status: "ok" as const, restarts: 0 }),
    status: async () => {
      throw new UsageError("no status");
    },
    embed: async () => end(),
  } as unknown as Model;
  const log: string[] = [];
  const context = createContext({
    optionsOf: () => ({ options: {}, contextSize: undefined }),
    settings: {
      version: "test",
      access: { apiKeys: [], adminKey: undefined, token: undefined },
      parallel: 1,
      queue: 0,
      maxBodyBytes: 1000,
      maxMessages: 10,
      corsOrigins: [],
      corsRules: { credentials: true },
      strictModel: false,
      strictFields: false,
      slots: true,
      metrics: true,
      verbose: false,
      thinking: undefined,
      hosts: ["localhost"],
      isLocal: true,
      sampling: {},
      pooling: "mean",
      embeddingsOnly: false,
      pages: {},
      keepMs: Infinity,
      heartbeatMs: 12_000,
      patienceMs: 45_000,
      apiPrefix: "",
      tags: [],
      templateVariables: {},
      prefill: true,
    },
    models: [{ id: "fake", model, created: 0 }],
    log: (line) => log.push(line),
    stopSignal: new AbortController().signal,
  });
  const app = createApp(context, { families: routeFamilies });
  const ask = (path: string, body?: object): Promise<Response> =>
    app(
      new Request(`http://localhost${path}`, {
        headers: { host: "localhost" },
        ...(body && { method: "POST", body: JSON.stringify({ model: "fake", ...body }) }),
      }),
      here,
    );
  return { app, context, log, ask };
}

const messages = [{ role: "user", content: "hi" }];
const secret = "secret at /home/somebody";

const failures: [string, Error, number, string, boolean][] = [
  ["a bug", new TypeError(secret), 500, "internal_error", true],
  ["a dead thread", new WorkerError(secret), 500, "engine_failed", true],
  ["a full cache", new ContextError("the KV cache is full"), 503, "kv_cache_full", false],
  ["a wrong option", new UsageError("temperature: got x"), 400, "invalid_value", false],
  ["an abort", new AbortedError("it"), 499, "request_aborted", false],
];

describe.each(failures)("%s", (_name, error, status, code, isLogged) => {
  const fail = (): never => {
    throw error;
  };

  test("in an answer", async () => {
    const { ask, context, log } = server(fail);
    const response = await ask("/v1/chat/completions", { messages });
    expect(response.status).toBe(status);
    const text = await response.text();
    expect(JSON.parse(text)).toMatchObject({ error: { code } });
    expect(text).not.toContain("secret");
    expect(log.join().includes("secret")).toBe(isLogged);
    expect([context.queue.running, context.jobs.size]).toEqual([0, 0]);
  });

  test("in a stream, of every family", async () => {
    const { ask, context } = server(fail);
    const bodies: [string, object][] = [
      ["/v1/chat/completions", { messages, stream: true }],
      ["/v1/completions", { prompt: "hi", stream: true }],
      ["/v1/responses", { input: "hi", stream: true }],
      ["/v1/messages", { messages, max_tokens: 5, stream: true }],
      ["/api/chat", { messages }],
      ["/completion", { prompt: "hi", stream: true }],
    ];
    for (const [path, body] of bodies) {
      const response = await ask(path, body);
      expect([path, response.status]).toEqual([path, 200]);
      const text = await response.text();
      expect(text).toContain("hello"); // what came before the failure
      expect(text.trim().split("\n").at(-1)).toMatch(/"error"/); // and it is the last thing said
      expect(text).not.toContain("secret");
    }
    expect([context.queue.running, context.jobs.size]).toEqual([0, 0]);
  });
});

test("embeddings fail as everything else does", async () => {
  const { ask, log } = server(() => {
    throw new TypeError(secret);
  });
  const response = await ask("/v1/embeddings", { input: "hi" });
  expect(response.status).toBe(500);
  expect(await response.text()).not.toContain("secret");
  expect(log.join()).toContain("secret");
});

test("how far it was from the limit is in every answer, and in /metrics", async () => {
  const { ask } = server(() => result);
  const answer = (await (await ask("/v1/chat/completions", { messages })).json()) as object;
  expect(answer).toMatchObject({
    usage: { prompt_tokens: 2, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 1 } },
    timings: {
      cache_n: 1,
      prompt_n: 1,
      predicted_per_second: 50, // one step: the first token comes with the prompt
      sample_n: 2,
      sample_ms: 1,
      total_ms: 31,
      predicted_limit_per_second: 200,
      predicted_limit_fraction: 0.75,
    },
  });
  const metrics = await (await ask("/metrics")).text();
  expect(metrics).toContain('lantern_limit_ratio{phase="generation"} 0.75\n');
  expect(metrics).toContain("lantern_cached_tokens_total 1\n");
});

test("a place is given back when the model refuses to start", async () => {
  const { ask, context } = server(() => result);
  const { model } = context.models.find("fake");
  model.generate = () => {
    throw new UsageError("not now");
  };
  expect((await ask("/v1/chat/completions", { messages })).status).toBe(400);
  expect(context.queue.running).toBe(0);
});

test("names that cannot be decoded, and other methods", async () => {
  const { app, ask } = server(() => result);
  expect((await ask("/v1/models/%E0%A4%A")).status).toBe(404);
  const put = new Request("http://localhost/v1/models", {
    method: "PUT",
    headers: { host: "localhost" },
  });
  expect((await app(put, here)).status).toBe(404);
  const head = new Request("http://localhost/health", {
    method: "HEAD",
    headers: { host: "localhost" },
  });
  expect((await app(head, here)).status).toBe(200);
});
