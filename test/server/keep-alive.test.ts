// How long a model stays in memory: keep_alive of Ollama's requests, --keep-alive, and what a model that was unloaded answers.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { keepAliveFlag } from "../../apps/cli/flag-values.ts";
import type { RunningServer } from "../../apps/server/serve.ts";
import { keepMsOf } from "../../src/base/durations.ts";
import { type Model, open } from "../../src/index.ts";
import { modelId, post, serveModel } from "./test-server.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-keep-"));
let model: Model;
let server: RunningServer;
const log: string[] = [];
beforeAll(async () => {
  const cache = { cacheDiskBytes: 2 ** 26, cacheFolder: folder };
  model = await open(modelId, { threads: 1, parallel: 2, ...cache });
  server = await serveModel(model, log);
});
afterAll(async () => {
  await server.stop();
  await model.dispose();
  rmSync(folder, { recursive: true, force: true });
  expect(log).toEqual([]);
});

type Json = Record<string, unknown>;

const story = "Once upon a time there was a little girl who had a big red ball. ".repeat(9);

async function ask(path: string, body: object, status = 200): Promise<Json> {
  const response = await post(`${server.url}${path}`, body);
  const answer = (await response.json()) as Json;
  expect(response.status, JSON.stringify(answer)).toBe(status);
  return answer;
}

const tell = (more: object): Promise<Json> =>
  ask("/api/generate", {
    model: modelId,
    prompt: story,
    raw: true,
    stream: false,
    options: { temperature: 0, num_predict: 8 },
    ...more,
  });

async function loadedModels(): Promise<{ expires_at: string }[]> {
  const { models } = (await (await fetch(`${server.url}/api/ps`)).json()) as never;
  return models;
}

async function untilUnloaded(): Promise<void> {
  for (let tries = 0; !(await model.health()).unloaded; tries++) {
    if (tries > 1200) throw new Error("the model was not unloaded");
    await new Promise((resolve) => setTimeout(resolve, 50)); // it is not idle while it is asked
  }
}

test("durations are Ollama's", () => {
  expect(["5m", "1h30m", "300ms", "1.5s", "0", 0, 300, "300"].map(keepMsOf)).toEqual([
    300_000, 5_400_000, 300, 1500, 0, 0, 300_000, 300_000,
  ]);
  expect([-1, "-1", "-1s", "-5m"].map(keepMsOf)).toEqual(Array(4).fill(Infinity));
  for (const bad of ["", "5x", "m", "5 m", "h5", "1e3", "5m-1s", "9".repeat(200), {}, true]) {
    expect(keepMsOf(bad), JSON.stringify(bad)).toBeUndefined();
  }
  expect(keepAliveFlag("10m")).toBe(600_000);
  expect(() => keepAliveFlag("soon")).toThrow('a duration like "5m"');
});

test("a time that is none is refused by every route that takes one", async () => {
  for (const path of ["/api/generate", "/api/chat", "/api/embed", "/api/embeddings"]) {
    const body = { model: modelId, keep_alive: "soon" };
    const texts =
      path === "/api/embed" ? { input: "a" } : path.endsWith("s") ? { prompt: "a" } : {};
    const { error } = await ask(path, { ...body, ...texts }, 400);
    expect(error, path).toMatch(/"keep_alive": got "soon", expected seconds, or a duration/);
  }
  expect((await loadedModels()).map(({ expires_at }) => expires_at)).toEqual([
    "9999-12-31T23:59:59.000Z",
  ]);
});

test("keep_alive says when a model expires, from the end of its last request on", async () => {
  const before = Date.now();
  await tell({ keep_alive: "5m" });
  const [{ expires_at }] = (await loadedModels()) as [{ expires_at: string }];
  expect(Date.parse(expires_at)).toBeGreaterThanOrEqual(before + 300_000);
  expect(Date.parse(expires_at)).toBeLessThanOrEqual(Date.now() + 300_000);
  await tell({}); // without it, the last one goes on to count
  const [later] = await loadedModels();
  expect(Date.parse(later!.expires_at)).toBeGreaterThanOrEqual(Date.parse(expires_at));
  await tell({ keep_alive: -1 });
  expect((await loadedModels())[0]!.expires_at).toMatch(/^9999/);
});

test("0 unloads it after the answer; the next request loads it and goes on from disk", async () => {
  const { response } = await tell({ keep_alive: -1 });
  await tell({ keep_alive: 0 });
  await untilUnloaded();
  expect(await loadedModels()).toEqual([]);
  const { stateBytesHeld, memory } = await model.status();
  expect({ stateBytesHeld, memory }).toEqual({
    stateBytesHeld: 0,
    memory: { weightBytes: 0, kvBytes: 0, workBytes: 0 },
  });
  const props = (await (await fetch(`${server.url}/props`)).json()) as Json;
  expect(props).toMatchObject({ is_sleeping: true, model_alias: modelId });
  expect((await fetch(`${server.url}/health`)).status).toBe(200);
  expect((await model.health()).unloaded).toBe(true); // nobody who only looks has loaded it
  const again = await tell({ keep_alive: -1 });
  expect(again.response).toBe(response);
  const disk = again.prompt_cached_disk_count as number;
  expect(disk).toBeGreaterThan(64);
  expect(await loadedModels()).toHaveLength(1);
});

test("a request without a prompt loads and unloads", async () => {
  const empty = { model: modelId };
  expect(await ask("/api/generate", { ...empty, keep_alive: 0 })).toMatchObject({
    done_reason: "unload",
    response: "",
  });
  expect((await model.health()).unloaded).toBe(true);
  const loaded = await ask("/api/chat", { ...empty, messages: [], keep_alive: "1h" });
  expect(loaded).toMatchObject({ done_reason: "load" });
  expect((await model.health()).unloaded).toBeUndefined();
});

test("what runs is not disturbed, and other APIs load it as well", async () => {
  const options = { temperature: 0, num_predict: 100, ignore_eos: true };
  const long = tell({ prompt: "Once", options });
  const short = await tell({ keep_alive: 0, prompt: "Once", options: { num_predict: 1 } });
  expect(short.done).toBe(true);
  const { eval_count } = await long;
  expect(eval_count).toBe(100);
  await untilUnloaded();
  const { usage } = await ask("/v1/completions", { prompt: story, max_tokens: 2, temperature: 0 });
  expect(usage).toMatchObject({ completion_tokens: 2 });
  await ask("/api/generate", { model: modelId, keep_alive: 0 });
  expect((await ask("/tokenize", { content: "the cat" })).tokens).toHaveLength(2);
});

test("in the API: unload() is refused while it computes; requests meanwhile wait for the load", async () => {
  const generation = model.generate("Once", { maxTokens: 1000, ignoreEos: true });
  for await (const _ of generation.tokens()) break;
  const aborted = generation.result.catch(() => undefined);
  await aborted;
  // On a busy machine the engine may be done before it is asked: then once more. Its answer is whole either way.
  let isRefused = false;
  for (let tries = 0; !isRefused && tries < 20; tries++) {
    const running = model.generate("Once", { maxTokens: 200, ignoreEos: true });
    isRefused = !(await model.unload());
    expect((await running.result).tokenIds).toHaveLength(200);
  }
  expect(isRefused).toBe(true);
  await expect.poll(() => model.unload()).toBe(true);
  expect(await model.unload()).toBe(true);
  const [one, two] = await Promise.all([
    model.generate("Once", { maxTokens: 3, temperature: 0 }).result,
    model.countTokens("the cat sat, é 😀. ".repeat(900)), // on the text thread
  ]);
  expect(one.tokenIds).toHaveLength(3);
  expect(two).toBeGreaterThan(900);
});
