// An encoder that is served: what its clients get from /v1/embeddings, /v1/rerank, llama.cpp's and Ollama's routes, and what it
// refuses. Its numbers are compared with those of the model itself.

import { Ollama } from "ollama";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type RunningServer, startServer } from "../../apps/server/serve.ts";
import { type Model, open, type RerankResult } from "../../src/index.ts";
import { tinyEncoder } from "../support/tiny-encoder.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { post } from "./test-server.ts";

let ranker: Model;
let writer: Model;
let server: RunningServer;
const files: { remove(): void }[] = [];
const log: string[] = [];
const documents = ["the cat sat", "eels at sea", "a"];
let own: RerankResult;

beforeAll(async () => {
  const named = { type: "string", value: "nomic-embed-text" };
  const made = [await tinyEncoder({ more: [["general.name", named]] }), await tinyFile()];
  files.push(...made);
  const how = { threads: 1, level: 1, contextSize: 64 } as const;
  [ranker, writer] = (await Promise.all(made.map(({ path }) => open(path, how)))) as [Model, Model];
  server = await serve({});
  own = await ranker.rerank("the cat", documents);
});
afterAll(async () => {
  await server.stop();
  await Promise.all([ranker.dispose(), writer.dispose()]);
  for (const file of files) file.remove();
  expect(log).toEqual([]);
});

function serve(more: object): Promise<RunningServer> {
  return startServer({
    models: { ranker, writer },
    version: "test",
    port: 0,
    graceMs: 100,
    token: false,
    log: (line) => log.push(line),
    ...more,
  });
}

async function ask<T>(path: string, body: unknown, at: RunningServer = server): Promise<T> {
  return (await (await post(at.url + path, body)).json()) as T;
}

async function refused(path: string, body: unknown, at: RunningServer = server): Promise<string> {
  const answer = await post(at.url + path, body);
  const { error } = (await answer.json()) as { error: { message: string } | string };
  return `${answer.status} ${typeof error === "string" ? error : error.message}`;
}

interface Ranked {
  results: { index: number; relevance_score: number; document?: { text: string } }[];
}

describe("rerank", () => {
  test.each(["/v1/rerank", "/v1/reranking", "/rerank", "/reranking"])("%s", async (path) => {
    const body = { model: "ranker", query: "the cat", documents };
    expect(await ask(path, body)).toEqual({
      model: "ranker",
      object: "list",
      usage: { prompt_tokens: own.tokens, total_tokens: own.tokens },
      results: own.results.map(({ index, score }) => ({ index, relevance_score: score })),
    });
  });

  test("the best ones, with their documents, given as objects", async () => {
    const { results } = await ask<Ranked>("/v1/rerank", {
      query: "the cat",
      documents: documents.map((text) => ({ text })),
      top_n: 2,
      return_documents: true,
    });
    expect(results).toEqual(
      own.results.slice(0, 2).map(({ index, score, document }) => ({
        index,
        relevance_score: score,
        document: { text: document },
      })),
    );
  });

  test("TEI's format, where the body has texts", async () => {
    const body = { query: "the cat", texts: documents, return_text: true, truncate: false };
    const expected = own.results.map(({ index, score, document }) => ({
      index,
      score,
      text: document,
    }));
    expect(await ask("/rerank", body)).toEqual(expected);
    const [best] = await ask<{ score: number }[]>("/rerank", { ...body, raw_scores: false });
    expect(best!.score).toBeCloseTo(1 / (1 + Math.exp(-own.results[0]!.score)), 12);
  });

  test.each([
    [{ documents }, /^400 "query": /],
    [{ query: "a" }, /^400 "documents": expected at least one text/],
    [{ query: "a", documents: [] }, /^400 "documents": expected at least one/],
    [{ query: "a", documents: "text" }, /^400 "documents": expected a list/],
    [{ query: "a", documents: [5] }, /^400 "documents": expected a list/],
    [{ query: "a", documents: [{ txt: "" }] }, /^400 "documents": expected a list/],
    [{ query: ["a"], documents }, /^400 "query": /],
    [{ query: "a", documents, top_n: 0 }, /^400 "top_n": /],
    [{ query: "a", documents, rank_fields: ["x"] }, /^400 "rank_fields" is not supported/],
    [{ query: "a", documents: new Array(2049).fill("a") }, /^400 "documents": got 2049 texts/],
    [{ query: "a", documents: new Array(5000).fill("a") }, /^400 "documents": expected a list/],
    [{ query: "e".repeat(200), documents }, /^400 the request \(\d+ tokens\) exceeds/],
    [{ query: "a", documents: ["e".repeat(200)] }, /^400 the text has \d+ tokens, but the context/],
    [
      { model: "writer", query: "a", documents },
      /^501 the model "writer" has no classifier that could score documents. Serve a reranker/,
    ],
  ])("refuses %.60j", async (body, message) => {
    expect(await refused("/v1/rerank", { model: "ranker", ...body })).toMatch(message);
  });

  test("a client that leaves gives its turn back", async () => {
    const leave = new AbortController();
    const asked = fetch(`${server.url}/v1/rerank`, {
      method: "POST",
      signal: leave.signal,
      body: JSON.stringify({ query: "the cat", documents: new Array(2000).fill("the cat sat") }),
    });
    while (server.context.queue.running === 0) await new Promise((next) => setTimeout(next, 1));
    leave.abort();
    await expect(asked).rejects.toThrow();
    while (server.context.queue.running > 0) await new Promise((next) => setTimeout(next, 5));
  });
});

describe("embeddings of an encoder", () => {
  test("OpenAI's client: dimensions, and the model's prefix if it is asked for", async () => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
    const short = { model: "ranker", input: documents, dimensions: 7 };
    const { data, usage } = await client.embeddings.create(short);
    const vectors = await ranker.embed(documents, { dimensions: 7 });
    expect(data.map(({ embedding }) => embedding)).toEqual(vectors.map((one) => [...one.vector]));
    expect(usage.total_tokens).toBe(vectors.reduce((sum, { tokens }) => sum + tokens, 0));
    const query = { model: "ranker", input: "a", input_type: "query" };
    const [asked] = (await client.embeddings.create(query)).data;
    const [expected] = await ranker.embed(["search_query: a"]);
    expect(asked!.embedding).toEqual([...expected!.vector]);
  });

  test("llama.cpp's: norms, and a vector for each token", async () => {
    const body = { model: "ranker", content: documents, embd_normalize: 1, pooling: "cls" };
    const expected = await ranker.embed(documents, { normalize: 1, pooling: "cls" });
    const list = expected.map(({ vector }, index) => ({ index, embedding: [[...vector]] }));
    expect(await ask("/embedding", body)).toEqual(list);
    expect(await ask("/v1/embeddings", body)).toEqual(list); // "content" is not OpenAI's
    type Rows = { embedding: number[][] }[];
    const rows = await ask<Rows>("/embeddings", { input: "the cat", pooling: "none" });
    const [all] = await ranker.embed(["the cat"], { pooling: "none", normalize: false });
    expect(rows[0]!.embedding).toHaveLength(all!.tokens);
    expect(rows[0]!.embedding.flat()).toEqual([...all!.vector]);
  });

  test("Ollama's client", async () => {
    const client = new Ollama({ host: server.url });
    const { embeddings } = await client.embed({ model: "ranker", input: documents, dimensions: 7 });
    const vectors = await ranker.embed(documents, { dimensions: 7 });
    expect(embeddings).toEqual(vectors.map(({ vector }) => [...vector]));
    expect((await client.show({ model: "ranker" })).capabilities).toEqual(["embedding"]);
    expect((await client.show({ model: "writer" })).capabilities).toEqual([
      "completion",
      "embedding",
    ]);
  });

  test.each([
    ["/v1/embeddings", { input: "a", pooling: "none" }, /^400 "pooling": got "none"/],
    ["/v1/embeddings", { input: "a", pooling: "max" }, /^400 "pooling": /],
    ["/v1/embeddings", { input: "a", dimensions: 33 }, /^400 dimensions: got 33, .* from 1 to 32/],
    ["/v1/embeddings", { input: [5], input_type: "query" }, /^400 "input": got token ids/],
    ["/v1/embeddings", {}, /^400 "input": expected a text/],
    ["/embedding", { input: "a", encoding_format: "base64" }, /^400 "encoding_format" is not supp/],
    ["/v1/embeddings", { input: "e".repeat(200) }, /^400 the input \(\d+ tokens\) is too large/],
    ["/v1/completions", { prompt: "a" }, /^501 the model "ranker" \(bert\) makes embeddings/],
    ["/v1/chat/completions", { messages: [{ role: "user", content: "a" }] }, /^501 .*embeddings/],
    ["/api/generate", { prompt: "a" }, /^501 the model "ranker"/],
  ])("%s refuses %j", async (path, body, message) => {
    expect(await refused(path, { model: "ranker", ...body })).toMatch(message);
  });

  test("a text may fill the context: nothing follows it", async () => {
    const { usage } = await ask<{ usage: object }>("/v1/embeddings", {
      input: new Array(64).fill(9),
    });
    expect(usage).toEqual({ prompt_tokens: 64, total_tokens: 64 });
  });

  test("/v1/models says what each can do", async () => {
    const { data } = (await (await fetch(`${server.url}/v1/models`)).json()) as {
      data: { id: string; capabilities: string[]; meta: { pooling: string } }[];
    };
    const found = data.map(({ id, capabilities, meta }) => [id, capabilities, meta.pooling]);
    expect(found).toEqual([
      ["ranker", ["embedding", "rerank"], "mean"],
      ["writer", ["completion", "embedding"], "mean"],
    ]);
  });

  test("texts are counted", async () => {
    const text = await (await fetch(`${server.url}/metrics`)).text();
    expect(text).toMatch(/^lantern_embedded_texts_total\{model="ranker"\} \d+$/m);
  });
});

test("a server for ranks: nothing is generated, and embeddings are scores", async () => {
  const only = await serve({ embeddingsOnly: true, pooling: "rank" });
  expect(await refused("/v1/completions", { model: "writer", prompt: "a" }, only)).toMatch(
    /^501 this server answers only requests for embeddings and ranks/,
  );
  const body = { query: "the cat", documents };
  expect((await ask<Ranked>("/v1/rerank", body, only)).results).toHaveLength(3);
  type Rows = { embedding: number[][] }[];
  const scores = await ask<Rows>("/embedding", { model: "ranker", input: "a" }, only);
  const [expected] = await ranker.embed(["a"], { pooling: "rank" });
  expect(scores[0]!.embedding).toEqual([[...expected!.vector]]);
  const plain = await ask<Rows>("/embedding", { model: "writer", input: "a" }, only);
  expect(plain[0]!.embedding[0]).toHaveLength(32);
  await only.stop();
});
