// What the server says of its caches: cached tokens by tier in each protocol, /metrics, why a prompt is computed again in the log, and
// the routes that show and clear it.
// Held against: the tokens that the test has sent before.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { CacheView } from "../../apps/server/protocols/lantern/cache.ts";
import { type RunningServer, startServer } from "../../apps/server/serve.ts";
import { type Model, open } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { post } from "./test-server.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-cache-"));
const log: string[] = [];
let file: Awaited<ReturnType<typeof tinyFile>>;
let model: Model;
let server: RunningServer;

beforeAll(async () => {
  file = await tinyFile();
  model = await open(file.path, {
    threads: 1,
    contextSize: 256,
    cacheRamBytes: 1e7,
    cacheDiskBytes: 1e7,
    cacheFolder: folder,
  });
  server = await startServer({
    models: { tiny: model },
    version: "test",
    port: 0,
    token: false,
    cacheFolder: folder,
    logRequest: (line) => log.push(line),
  });
});
afterAll(async () => {
  await server.stop();
  await model.dispose();
  file.remove();
  rmSync(folder, { recursive: true, force: true });
});

type Json = Record<string, unknown>;

async function ask(path: string, body: object): Promise<Json> {
  const response = await post(server.url + path, body);
  const answer = (await response.json()) as Json;
  expect(response.status, JSON.stringify(answer)).toBe(200);
  return answer;
}

/** The same text, after others have taken its place in the KV cache. */
async function askLater(path: string, body: object): Promise<Json> {
  await ask(path, body);
  for (const letter of "ab") {
    await ask("/completion", { prompt: letter.repeat(180), n_predict: 1, temperature: 0 });
  }
  return await ask(path, body);
}

const content = "the cat sat ".repeat(10);
const messages = [{ role: "user", content }];

test("OpenAI, Anthropic, Ollama and llama.cpp: tokens from each tier", async () => {
  const chat = await askLater("/v1/chat/completions", { messages, max_tokens: 1 });
  const details = (chat.usage as Json).prompt_tokens_details as Record<string, number>;
  const { cached_kv_tokens: kv, cached_ram_tokens: ram, cached_disk_tokens: disk } = details;
  expect(ram).toBeGreaterThan(32);
  expect(kv! + ram! + disk!).toBe(details.cached_tokens);
  expect(chat.timings).toMatchObject({
    ...{ cache_n: details.cached_tokens, cache_kv_n: kv, cache_ram_n: ram, cache_disk_n: disk },
  });

  const response = await ask("/v1/responses", { input: content, max_output_tokens: 1 });
  expect((response.usage as Json).input_tokens_details).toMatchObject({
    cached_tokens: expect.any(Number),
    cached_kv_tokens: expect.any(Number),
    cached_ram_tokens: expect.any(Number),
    cached_disk_tokens: 0,
  });
  const said = await ask("/v1/messages", { model: "tiny", messages, max_tokens: 1 });
  const usage = said.usage as Record<string, number>;
  expect(usage).toMatchObject({
    cache_read_input_tokens: expect.any(Number),
    cache_read_ram_tokens: 0,
    cache_read_disk_tokens: 0,
  });
  expect(usage.cache_read_input_tokens).toBeGreaterThan(32);
  const text = await ask("/v1/completions", { prompt: [content, content], max_tokens: 1 });
  expect((text.usage as Json).prompt_tokens_details).toMatchObject({ cached_disk_tokens: 0 });
  const ollama = await ask("/api/chat", { model: "tiny", messages, stream: false });
  expect(ollama.prompt_cached_disk_count).toBe(0);
  const whole = await askLater("/completion", { prompt: content, n_predict: 1 });
  expect(whole.tokens_cached).toBeGreaterThan(32);
  expect((whole.timings as Json).restore_ms).toEqual(expect.any(Number));
});

/** Whatever clients add up. */
function expectNumbers(value: unknown, path: string): void {
  for (const [key, inner] of Object.entries((value ?? {}) as Json)) {
    const at = `${path}.${key}`;
    if (/_details$/.test(key)) expectNumbers(inner, at);
    else expect(inner, at).toEqual(expect.any(Number));
  }
}

test("usage, its details and timings are numbers in every protocol, whole and streamed", async () => {
  const asked: readonly [string, Json][] = [
    ["/completion", { prompt: content, n_predict: 2 }],
    ["/v1/completions", { prompt: content, max_tokens: 2 }],
    ["/v1/chat/completions", { messages, max_tokens: 2, stream_options: { include_usage: true } }],
    ["/v1/responses", { input: content, max_output_tokens: 2, timings_per_token: true }],
    ["/v1/messages", { model: "tiny", messages, max_tokens: 2 }],
  ];
  for (const [path, { stream_options, ...body }] of asked) {
    for (const stream of [false, true]) {
      const more = {
        ...body,
        stream,
        ...(stream && stream_options !== undefined && { stream_options }),
      };
      const response = await post(server.url + path, more);
      const text = await response.text();
      expect(response.status, text).toBe(200);
      const events = stream
        ? [...text.matchAll(/^data: (\{.*)$/gm)].map(([, event]) => JSON.parse(event!) as Json)
        : [JSON.parse(text) as Json];
      const all = events.flatMap((event) => [
        event,
        (event.response ?? event.message ?? {}) as Json,
      ]);
      const counted = all.filter(({ usage, timings }) => usage || timings);
      expect(counted.length, path).toBeGreaterThan(0);
      for (const { usage, timings } of counted) {
        expectNumbers(usage, `${path} usage`);
        expectNumbers(timings, `${path} timings`);
      }
    }
  }
});

test("/metrics has tokens, bytes and evictions by tier", async () => {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  const value = (name: string) =>
    Number(
      text
        .split("\n")
        .find((line) => line.startsWith(name))
        ?.split(" ")
        .at(-1),
    );
  expect(value('lantern_cache_tokens_total{model="tiny",tier="ram"}')).toBeGreaterThan(32);
  expect(value('lantern_cache_tokens_total{model="tiny",tier="computed"}')).toBeGreaterThan(100);
  expect(value('lantern_cache_restored_bytes_total{model="tiny",tier="ram"}')).toBeGreaterThan(0);
  expect(value('lantern_cache_evicted_total{model="tiny",tier="kv"}')).toBeGreaterThan(0);
  expect(value('lantern_cache_damaged_total{model="tiny",tier="disk"}')).toBe(0);
  expect(value('lantern_cache_budget_bytes{model="tiny",tier="disk"}')).toBe(1e7);
});

test("a rewritten history is in the log once, with the first differing token, and in each answer", async () => {
  log.length = 0;
  server.context.saidChanged.clear();
  const numbers = Array.from({ length: 50 }, (_, i) => (i * 37) % 101).join(" ");
  const turn = (day: string) =>
    ask("/completion", { prompt: `It is ${day}: ${numbers}`, n_predict: 1 });
  await turn("Monday");
  for (const day of ["Tuesday", "Friday"]) {
    const { timings, computed_again: again } = await turn(day);
    expect(again).toMatchObject({ reason: "changed", tokens: expect.any(Number) });
    expect((timings as Json).computed_again_n).toBe((again as Json).tokens);
  }
  const said = log.filter((line) => line.includes("is another"));
  expect(said).toHaveLength(1);
  expect(said[0]).toMatch(/^tiny: a prompt repeats \d+ tokens .*it was \d+ "M", and is \d+ "T"/);
});

test("what is kept is shown by model, and cleared: in the KV cache, in memory and on disk", async () => {
  const view = async (path: string, body?: object) => {
    const response = await (body ? post(server.url + path, body) : fetch(server.url + path));
    return (await response.json()) as CacheView;
  };
  const before = await view("/lantern/v1/cache");
  expect(before.stored).toMatchObject({
    path: folder,
    models: [{ model: "tiny.gguf", kvType: "f16" }],
  });
  expect(before.stored.bytes).toBeGreaterThan(10_000);
  expect(before.served[0]).toMatchObject({ id: "tiny", cache: { ram: { budgetBytes: 1e7 } } });
  const wrong = await view("/lantern/v1/cache/clear", { folder: "../elsewhere" });
  expect(wrong.stored.bytes).toBe(before.stored.bytes);
  const after = await view("/lantern/v1/cache/clear", {});
  expect(after.stored).toMatchObject({ bytes: 0, models: [] });
  expect(after.served[0]!.cache.ram.bytes).toBe(0);
  const fields = { prompt: content, n_predict: 1 };
  expect((await ask("/completion", fields)).tokens_cached).toBe(0);
  // It begins a new file.
  await expect.poll(async () => (await view("/lantern/v1/cache")).stored.bytes).toBeGreaterThan(0);
});
