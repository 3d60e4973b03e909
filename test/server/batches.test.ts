// Files and batches over HTTP, with OpenAI's and Anthropic's own clients; bad uploads; owners; and a server that was stopped in the
// middle of a batch.
// Held against: OpenAI's and Anthropic's own clients.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI, { toFile } from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { StartOptions } from "../../apps/server/serve.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { nodeFileFolder } from "../../src/platform/node-file-folder.ts";
import { modelId, prompt, serveModel, type TestServer, testServer } from "./test-server.ts";

const data = mkdtempSync(join(tmpdir(), "lantern-batches-"));
const batches = (name: string): StartOptions["batches"] => ({
  open: () => openNodeDatabase(join(data, `${name}.db`)),
  folder: nodeFileFolder(join(data, name)),
});

let running: TestServer;
let openai: OpenAI;
let anthropic: Anthropic;
let url: string;
const maxTokens = 8;
let expected: string;

beforeAll(async () => {
  running = await testServer({ batches: batches("one")! });
  url = running.server.url;
  openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  anthropic = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  expected = (await running.model.generate(prompt, { temperature: 0, maxTokens }).result).text;
});
afterAll(async () => {
  await running.close();
  rmSync(data, { recursive: true, force: true });
  expect(running.log).toEqual([]);
});

const body = { model: modelId, prompt, temperature: 0, max_tokens: maxTokens };
const jsonl = (lines: readonly object[]): string =>
  lines.map((line) => `${JSON.stringify(line)}\n`).join("");
const completion = (id: string, more: object = {}) => ({
  ...{ custom_id: id, method: "POST", url: "/v1/completions" },
  body: { ...body, ...more },
});

async function upload(text: string, client: OpenAI = openai): Promise<string> {
  const file = await toFile(Buffer.from(text), "requests.jsonl");
  return (await client.files.create({ file, purpose: "batch" })).id;
}

async function ended(id: string, client: OpenAI = openai): Promise<OpenAI.Batch> {
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (["completed", "failed", "cancelled", "expired"].includes(batch.status)) return batch;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function textOf(id: string | null | undefined, client: OpenAI = openai): Promise<object[]> {
  const text = await (await client.files.content(id!)).text();
  return text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as object);
}

describe("openai", () => {
  test("a file: upload, look at it, list, read, delete", async () => {
    const text = jsonl([completion("ä", { prompt: "b\u0000\r\n--x" })]);
    const file = await toFile(Buffer.from(text), 'dir/na"me.jsonl');
    const made = await openai.files.create({ file, purpose: "batch" });
    expect(made).toMatchObject({
      object: "file",
      bytes: Buffer.byteLength(text),
      purpose: "batch",
    });
    expect(await openai.files.retrieve(made.id)).toEqual(made);
    expect(await (await openai.files.content(made.id)).text()).toBe(text);
    const listed = [];
    for await (const one of openai.files.list({ purpose: "batch", limit: 1 })) listed.push(one.id);
    expect(listed).toContain(made.id);
    expect(await openai.files.delete(made.id)).toMatchObject({ id: made.id, deleted: true });
    await expect(openai.files.retrieve(made.id)).rejects.toMatchObject({ status: 404 });
  });

  test("a batch of completions, with one that is refused", async () => {
    const lines = [completion("a"), completion("b", { temperature: "hot" }), completion("c")];
    const input_file_id = await upload(jsonl(lines));
    const made = await openai.batches.create({
      input_file_id,
      endpoint: "/v1/completions",
      completion_window: "24h",
      metadata: { who: "test" },
    });
    expect(made).toMatchObject({ object: "batch", status: "validating", input_file_id });
    const batch = await ended(made.id);
    expect(batch).toMatchObject({
      status: "completed",
      request_counts: { total: 3, completed: 2, failed: 1 },
      metadata: { who: "test" },
      usage: { output_tokens: 2 * maxTokens },
    });
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics).toContain("lantern_batch_time_to_first_token_seconds_count 2\n");
    expect(metrics).toContain("lantern_time_to_first_token_seconds_count 0\n"); // clients' alone
    expect(metrics).toContain(`lantern_generated_tokens_total ${2 * maxTokens}\n`);
    expect(await textOf(batch.output_file_id)).toMatchObject(
      ["a", "c"].map((custom_id) => ({
        custom_id,
        response: { status_code: 200, body: { choices: [{ text: expected }] } },
        error: null,
      })),
    );
    expect(await textOf(batch.error_file_id)).toMatchObject([
      { custom_id: "b", response: { status_code: 400, body: { error: { param: "temperature" } } } },
    ]);
    const listed = [];
    for await (const one of openai.batches.list({ limit: 1 })) listed.push(one.id);
    expect(listed).toContain(made.id);
  });

  test.each([
    ["/v1/chat/completions", { messages: [{ role: "user", content: prompt }], max_tokens: 4 }],
    ["/v1/responses", { input: prompt, max_output_tokens: 4 }],
    ["/v1/embeddings", { input: prompt }],
  ] as const)("lines for %s", async (endpoint, request) => {
    const line = { custom_id: "x", method: "POST", url: endpoint, body: request };
    const made = await openai.batches.create({
      input_file_id: await upload(jsonl([line])),
      endpoint,
      completion_window: "24h",
    });
    const batch = await ended(made.id);
    expect(batch.request_counts).toEqual({ total: 1, completed: 1, failed: 0 });
    expect(await textOf(batch.output_file_id)).toMatchObject([{ response: { status_code: 200 } }]);
  });

  test("a file with wrong lines fails with their numbers", async () => {
    const made = await openai.batches.create({
      input_file_id: await upload(`${jsonl([completion("a")])}nonsense\n`),
      endpoint: "/v1/completions",
      completion_window: "24h",
    });
    const batch = await ended(made.id);
    expect(batch).toMatchObject({
      status: "failed",
      errors: { object: "list", data: [{ code: "invalid_json_line", line: 2 }] },
    });
    await expect(openai.batches.cancel(made.id)).rejects.toMatchObject({ status: 400 });
  });

  test("cancel", async () => {
    const lines = Array.from({ length: 200 }, (_, i) => completion(`${i}`, { max_tokens: 64 }));
    const made = await openai.batches.create({
      input_file_id: await upload(jsonl(lines)),
      endpoint: "/v1/completions",
      completion_window: "24h",
    });
    const cancelled = await openai.batches.cancel(made.id);
    expect(cancelled.status).toBe("cancelling");
    const batch = await ended(made.id);
    expect(batch).toMatchObject({ status: "cancelled" });
  });

  test("what is wrong is said", async () => {
    const create = (more: object) =>
      openai.batches.create({
        ...{ input_file_id: "file-none", endpoint: "/v1/completions", completion_window: "24h" },
        ...more,
      } as OpenAI.BatchCreateParams);
    await expect(create({})).rejects.toMatchObject({ status: 404 });
    await expect(create({ endpoint: "/v1/images" })).rejects.toMatchObject({ status: 400 });
    await expect(create({ completion_window: "1000h" })).rejects.toMatchObject({
      status: 400,
      param: "completion_window",
    });
    await expect(openai.batches.retrieve("batch_none")).rejects.toMatchObject({ status: 404 });
    const file = await toFile(Buffer.from("x"), "x");
    await expect(openai.files.create({ file, purpose: "vision" })).rejects.toMatchObject({
      status: 400,
      param: "purpose",
    });
  });
});

describe("@anthropic-ai/sdk", () => {
  const params = {
    model: modelId,
    max_tokens: 4,
    temperature: 0,
    messages: [{ role: "user" as const, content: prompt }],
  };
  test("a batch: create, wait, results, list, delete", async () => {
    const made = await anthropic.messages.batches.create({
      requests: [
        { custom_id: "good", params },
        { custom_id: "bad", params: { ...params, max_tokens: -5 } },
      ],
    });
    expect(made).toMatchObject({ type: "message_batch", processing_status: "in_progress" });
    let batch = made;
    while (batch.processing_status !== "ended") {
      await new Promise((resolve) => setTimeout(resolve, 20));
      batch = await anthropic.messages.batches.retrieve(made.id);
    }
    expect(batch.request_counts).toEqual({
      ...{ processing: 0, succeeded: 1, errored: 1, canceled: 0, expired: 0 },
    });
    const results = [];
    for await (const one of await anthropic.messages.batches.results(made.id)) results.push(one);
    expect(results).toMatchObject([
      { custom_id: "good", result: { type: "succeeded", message: { type: "message" } } },
      { custom_id: "bad", result: { type: "errored", error: { type: "error" } } },
    ]);
    const listed = [];
    for await (const one of anthropic.messages.batches.list({ limit: 1 })) listed.push(one.id);
    expect(listed).toContain(made.id);
    // OpenAI's routes have their own.
    await expect(openai.batches.retrieve(made.id)).rejects.toMatchObject({ status: 404 });
    expect(await anthropic.messages.batches.delete(made.id)).toMatchObject({
      type: "message_batch_deleted",
    });
    await expect(anthropic.messages.batches.retrieve(made.id)).rejects.toMatchObject({
      status: 404,
    });
  });

  test("cancel; the same custom_id twice", async () => {
    const requests = Array.from({ length: 100 }, (_, i) => ({
      custom_id: `r${i}`,
      params: { ...params, max_tokens: 60 },
    }));
    const made = await anthropic.messages.batches.create({ requests });
    const cancelled = await anthropic.messages.batches.cancel(made.id);
    expect(cancelled.processing_status).toBe("canceling");
    const twice = [requests[0]!, requests[0]!];
    await expect(anthropic.messages.batches.create({ requests: twice })).rejects.toMatchObject({
      status: 400,
    });
  });
});

describe("uploads", () => {
  const send = async (type: string, content: string | Uint8Array<ArrayBuffer>) => {
    const response = await fetch(`${url}/v1/files`, {
      method: "POST",
      headers: { "content-type": type },
      body: content,
    });
    return { status: response.status, body: (await response.json()) as { error?: object } };
  };
  const type = "multipart/form-data; boundary=B";
  const head = (field: string, more = "") =>
    `--B\r\nContent-Disposition: form-data; name="${field}"${more}\r\n\r\n`;
  const file = `${head("file", '; filename="a"')}x\r\n`;
  const purpose = `${head("purpose")}batch\r\n`;
  test.each([
    ["no form", "application/json", "{}"],
    ["no boundary", "multipart/form-data", "x"],
    ["nothing", type, ""],
    ["no end", type, `${purpose}${file}`],
    ["cut off in a file", type, `${purpose}${head("file", '; filename="a"')}xxxx`],
    ["no file", type, `${purpose}--B--\r\n`],
    ["no purpose", type, `${file}--B--\r\n`],
    ["two files", type, `${purpose}${file}${file}--B--\r\n`],
    ["a file in another field", type, `${purpose}${head("data", '; filename="a"')}x\r\n--B--\r\n`],
    ["an unknown field", type, `${purpose}${head("colour")}red\r\n${file}--B--\r\n`],
    ["a part without a name", type, `--B\r\nContent-Type: text/plain\r\n\r\nx\r\n--B--\r\n`],
    ["a long header", type, `--B\r\nX: ${"y".repeat(20_000)}\r\n\r\nx\r\n--B--\r\n`],
    ["a long field", type, `${head("purpose")}${"y".repeat(70_000)}\r\n--B--\r\n`],
    ["many parts", type, `${head("a").repeat(1)}${`x\r\n${head("a")}`.repeat(50)}x\r\n--B--\r\n`],
  ])("%s: 400", async (_, contentType, content) => {
    expect((await send(contentType, content)).status).toBe(400);
  });

  test("in the other order, and with a quoted boundary", async () => {
    const quoted = 'multipart/form-data; boundary="B"';
    const { status, body: made } = await send(quoted, `${file}${purpose}--B--\r\n`);
    expect([status, made]).toMatchObject([200, { bytes: 1, filename: "a" }]);
  });

  test("nothing of a refused upload is left", async () => {
    const folder = nodeFileFolder(join(data, "one"));
    const unknown = async (): Promise<string[]> => {
      const there = await folder.list();
      const known = new Set<string>();
      for await (const { id } of openai.files.list()) known.add(id);
      return there.filter((id) => !known.has(id));
    };
    // A cancelled batch may be writing its files: their bytes come before their rows.
    await expect.poll(unknown).toEqual([]);
  });
});

test("files and batches belong to the key that made them", async () => {
  const server = await serveModel(running.model, running.log, {
    batches: batches("keys")!,
    apiKeys: ["key-a", "key-b"],
  });
  const client = (apiKey: string) =>
    new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });
  const [a, b] = [client("key-a"), client("key-b")];
  const id = await upload(jsonl([completion("x")]), a);
  expect((await a.files.list()).data.length).toBe(1);
  expect((await b.files.list()).data.length).toBe(0);
  await expect(b.files.content(id)).rejects.toMatchObject({ status: 404 });
  await expect(b.files.delete(id)).rejects.toMatchObject({ status: 404 });
  const asked = {
    input_file_id: id,
    endpoint: "/v1/completions",
    completion_window: "24h",
  } as const;
  await expect(b.batches.create(asked)).rejects.toMatchObject({ status: 404 });
  const batch = await a.batches.create(asked);
  await expect(b.batches.cancel(batch.id)).rejects.toMatchObject({ status: 404 });
  expect((await ended(batch.id, a)).status).toBe("completed");
  await server.stop();
});

test("a batch goes on after a restart: every line once", async () => {
  const first = await serveModel(running.model, running.log, { batches: batches("restart")! });
  const one = new OpenAI({ baseURL: `${first.url}/v1`, apiKey: "none" });
  const lines = Array.from({ length: 40 }, (_, i) => completion(`${i}`));
  const made = await one.batches.create({
    input_file_id: await upload(jsonl(lines), one),
    endpoint: "/v1/completions",
    completion_window: "24h",
  });
  while ((await one.batches.retrieve(made.id)).request_counts!.completed < 3) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await first.stop();
  const second = await serveModel(running.model, running.log, { batches: batches("restart")! });
  const two = new OpenAI({ baseURL: `${second.url}/v1`, apiKey: "none" });
  const batch = await ended(made.id, two);
  expect(batch.request_counts).toEqual({ total: 40, completed: 40, failed: 0 });
  const output = (await textOf(batch.output_file_id, two)) as {
    custom_id: string;
    response: { body: { choices: { text: string }[] } };
  }[];
  expect(output.map(({ custom_id }) => custom_id)).toEqual(lines.map(({ custom_id }) => custom_id));
  for (const { response } of output) expect(response.body.choices[0]!.text).toBe(expected);
  await second.stop();
});
