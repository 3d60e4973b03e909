// Many models in one server: loaded by the name in a request, unloaded when others need the room; who waits, what is refused, and
// what the lists of OpenAI, llama.cpp and Ollama say meanwhile. With tiny real models.

import { Ollama } from "ollama";
import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import {
  type ModelPreset,
  type OnDemandModels,
  type PoolLimits,
  type RunningServer,
  type StartOptions,
  startServer,
} from "../../apps/server/serve.ts";
import { type Model, open } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { post, until } from "./test-server.ts";

const ids = ["ant", "bee", "cat", "dog"];
const files = new Map<string, Awaited<ReturnType<typeof tinyFile>>>();
/** What each says to the same question, alone. */
const answers = new Map<string, string>();
const ask = { prompt: "the cat", max_tokens: 12, temperature: 0 };

beforeAll(async () => {
  for (const [at, id] of ids.entries()) {
    files.set(id, await tinyFile({ name: id, seed: at + 1 }));
    const model = await open(files.get(id)!.path, { threads: 1 });
    const { text } = await model.generate(ask.prompt, { maxTokens: 12, temperature: 0 }).result;
    answers.set(id, text);
    await model.dispose();
  }
  expect(new Set(answers.values()).size).toBe(ids.length);
});
const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});
afterAll(() => {
  for (const { remove } of files.values()) remove();
});

interface Pool {
  readonly server: RunningServer;
  readonly url: string;
  /** Loads, in their order. */
  readonly loads: string[];
  readonly presets: Map<string, ModelPreset>;
  readonly log: string[];
  /** Opened and not unloaded: never more than there is room for. */
  readonly most: () => number;
  /** Loads wait for this. */
  gate: Promise<void>;
}

async function serve(
  limits: Partial<PoolLimits>,
  more: Partial<StartOptions> = {},
  needs = 100,
): Promise<Pool> {
  const loads: string[] = [];
  const log: string[] = [];
  const presets = new Map<string, ModelPreset>();
  const versions = new Map<string, string>();
  let inMemory = 0;
  let most = 0;
  const counted = (model: Model): Model =>
    new Proxy(model, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== "function") return value;
        if (name === "unload" || name === "load") {
          return async () => {
            const before = (await model.health()).unloaded === true;
            const result: unknown = await value.call(target);
            const isOut = (await model.health()).unloaded === true;
            if (isOut !== before) inMemory += isOut ? -1 : 1;
            if (name === "load" && before) loads.push(model.info.name);
            most = Math.max(most, inMemory);
            return result;
          };
        }
        return value.bind(target);
      },
    });
  const pool = { gate: Promise.resolve() };
  const onDemand: OnDemandModels = {
    list: async () =>
      [...ids, "broken"].map((id) => ({
        id,
        aliases: [`${id}.gguf`],
        file: `${id}.gguf`,
        bytes: 9,
      })),
    async open(id, { signal, onProgress }) {
      loads.push(id);
      await pool.gate;
      const path = files.get(id)?.path ?? "/nowhere/secret/broken.gguf";
      const model = counted(await open(path, { threads: 1, parallel: 8, signal, onProgress }));
      inMemory++;
      most = Math.max(most, inMemory);
      return model;
    },
    needs: async () => needs,
    preset: (id) => presets.get(id),
    aliased: (name) => (name === "pet" ? "dog" : undefined),
    derive: async () => {},
    forget: () => false,
    version: (id) => versions.get(id) ?? "",
  };
  const server = await startServer({
    ...{ models: {}, version: "test", port: 0, graceMs: 200, token: false },
    log: (line) => log.push(line),
    onDemand,
    limits: { models: Infinity, autoload: true, ...limits },
    ...more,
  });
  closing.push(() => server.stop());
  return Object.assign(pool, { server, url: server.url, loads, presets, log, most: () => most });
}

type Json = Record<string, unknown>;

async function complete(url: string, model: string, more: object = {}): Promise<string> {
  const response = await post(`${url}/v1/completions`, { ...ask, model, ...more });
  const body = (await response.json()) as { choices?: { text: string }[]; error?: Json };
  if (!body.choices) throw new Error(`${response.status} ${JSON.stringify(body.error)}`);
  return body.choices[0]!.text;
}

async function statuses(url: string): Promise<Record<string, Json>> {
  const { data } = (await (await fetch(`${url}/models`)).json()) as { data: Json[] };
  return Object.fromEntries(data.map(({ id, status }) => [id as string, status as Json]));
}

test("20 requests to 4 models with room for 2: every answer is right, and never more than 2 are in memory", async () => {
  const { url, most, loads, log } = await serve({ models: 2 });
  const asked = Array.from({ length: 20 }, (_, at) => ids[(at * 7) % 4]!);
  const said = await Promise.all(asked.map((id) => complete(url, id)));
  expect(said).toEqual(asked.map((id) => answers.get(id)));
  expect(most()).toBeLessThanOrEqual(2);
  expect(loads).toHaveLength(4); // requests for the same model share its load
  const values = Object.values(await statuses(url)).map(({ value }) => value);
  expect(values.filter((value) => value === "loaded")).toHaveLength(2);
  expect(log).toEqual([]);
});

test("streams in every protocol load what they name; the least recently used leaves", async () => {
  const { url } = await serve({ models: 2 });
  const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const messages = [{ role: "user" as const, content: "the cat" }];
  const chat = await openai.chat.completions.create({ model: "ant", messages, max_tokens: 3 });
  expect(chat.model).toBe("ant");
  const ollama = new Ollama({ host: url });
  const lines = await ollama.generate({ model: "bee:latest", prompt: "the", stream: true });
  for await (const line of lines) expect(line.model).toBe("bee");
  await complete(url, "ant"); // bee was used longest ago now
  const body = { model: "pet", messages, max_tokens: 3 }; // a further name
  const answer = (await (await post(`${url}/v1/messages`, body)).json()) as Json;
  expect(answer.model).toBe("dog");
  expect(await statuses(url)).toMatchObject({
    ant: { value: "loaded" },
    bee: { value: "unloaded" },
    cat: { value: "unloaded" },
    dog: { value: "loaded" },
  });
  expect((await ollama.ps()).models.map(({ name }) => name)).toEqual(["ant", "dog"]);
  const tags = (await ollama.list()).models.map(({ name }) => name);
  expect(new Set(tags)).toEqual(new Set([...ids, "broken"]));
});

test("a model that writes is never unloaded: who needs its room waits, and newcomers wait behind them", async () => {
  const { url, server } = await serve({ models: 1 });
  const long = complete(url, "ant", { max_tokens: 60, ignore_eos: true });
  await until("it writes", () => server.context.jobs.size === 1);
  const other = complete(url, "bee");
  await until("it waits", () => server.context.registry.state("bee").value === "loading");
  const order: string[] = [];
  const [text] = await Promise.all([
    long.then((all) => {
      order.push("long");
      return all;
    }),
    other.then(() => order.push("bee")),
    complete(url, "ant").then(() => order.push("ant")),
  ]);
  expect(text.startsWith(answers.get("ant")!)).toBe(true);
  expect(order).toEqual(["long", "bee", "ant"]);
});

test("a client that goes away while it waits leaves no load behind", async () => {
  const { url, server, loads } = await serve({ models: 1 });
  const long = complete(url, "ant", { max_tokens: 60, ignore_eos: true });
  await until("it writes", () => server.context.jobs.size === 1);
  const gone = new AbortController();
  const body = JSON.stringify({ ...ask, model: "bee" });
  const headers = { "content-type": "application/json" };
  const waiting = fetch(`${url}/v1/completions`, {
    ...{ method: "POST", headers, body, signal: gone.signal },
  }).catch(() => "gone");
  await until("it waits", () => server.context.registry.state("bee").value === "loading");
  gone.abort();
  expect(await waiting).toBe("gone");
  await until("nobody waits", () => server.context.registry.state("bee").value === "unloaded");
  await long;
  expect(loads).toEqual(["ant"]);
});

test("who asks for a model just when the only other one has gone gets the model, not the other's reason", async () => {
  const { server } = await serve({ models: 1 });
  const { registry } = server.context;
  const gone = new AbortController();
  const first = registry.hold("bee", gone.signal);
  const reason = expect(first).rejects.toThrow("gone");
  gone.abort(new Error("gone"));
  const release = await registry.hold("bee", new AbortController().signal);
  await reason;
  expect(registry.state("bee").value).toBe("loaded");
  release();
});

test("what does not fit is refused with the numbers; pinned models stay", async () => {
  const limits = { bytes: 1_000_000 };
  const { url, presets, server } = await serve(limits, {}, 950_000);
  presets.set("ant", { isPinned: true });
  await complete(url, "ant");
  const held = server.context.models.list()[0]!.model.info;
  expect(held.weightBytes).toBeGreaterThan(50_000); // so the next one does not fit beside it
  const refused = await post(`${url}/v1/completions`, { ...ask, model: "bee" });
  expect(refused.status).toBe(503);
  expect(((await refused.json()) as { error: Json }).error).toMatchObject({
    code: "no_room",
    message: expect.stringMatching(
      /^the model "bee" cannot be loaded: it needs 950\.0 kB, but [\d.]+ kB are free of 1\.0 MB for models \(held by: ant [\d.]+ kB \(pinned\)\)\. Unload or unpin one/,
    ),
  });
  presets.set("ant", {});
  expect(await complete(url, "bee")).toBe(answers.get("bee"));
  expect(await statuses(url)).toMatchObject({ ant: { value: "unloaded" } });
});

test("a load that fails fails all who wait for it, says why without folders, and is tried again", async () => {
  const { url, loads } = await serve({});
  const both = await Promise.allSettled([complete(url, "broken"), complete(url, "broken")]);
  for (const one of both) {
    const reason = String((one as PromiseRejectedResult).reason);
    expect(reason).toMatch(
      /^Error: 500 .*broken.* could not be loaded.*no file.*model_load_failed/,
    );
    expect(reason).not.toContain("secret");
  }
  expect(loads).toEqual(["broken"]);
  expect((await statuses(url)).broken).toMatchObject({
    value: "unloaded",
    failed: true,
    error: expect.stringContaining("could not be loaded"),
  });
  await expect(complete(url, "broken")).rejects.toThrow(/model_load_failed/);
  expect(loads).toHaveLength(2);
  expect(await complete(url, "cat")).toBe(answers.get("cat"));
});

test("llama.cpp's routes load and unload; a load can be stopped", async () => {
  const pool = await serve({ models: 2 });
  const { url } = pool;
  const ok = async (path: string, model: string): Promise<Json> =>
    (await (await post(`${url}${path}`, { model })).json()) as Json;
  expect(await ok("/models/load", "ant")).toEqual({ success: true });
  await until("it is loaded", () => pool.server.context.registry.state("ant").value === "loaded");
  expect(await ok("/models/load", "ant")).toMatchObject({ error: { code: "model_loaded" } });
  expect(await ok("/models/unload", "ant")).toEqual({ success: true });
  expect(await ok("/models/unload", "ant")).toMatchObject({ error: { code: "model_not_loaded" } });
  expect(await ok("/models/load", "nobody")).toMatchObject({ error: { code: "model_not_found" } });
  const { promise, resolve } = Promise.withResolvers<void>();
  pool.gate = promise;
  const waiting = post(`${url}/v1/completions`, { ...ask, model: "bee" });
  await until("it is loaded", () => pool.loads.includes("bee"));
  expect((await statuses(url)).bee).toEqual({ value: "loading" });
  const stopping = ok("/models/unload", "bee");
  resolve();
  expect(await stopping).toEqual({ success: true });
  expect(await (await waiting).json()).toMatchObject({ error: { code: "model_load_stopped" } });
  expect((await statuses(url)).bee).toEqual({ value: "unloaded" });
});

test("a load that is stopped does not wait for those behind it", async () => {
  const pool = await serve({ models: 2 });
  const first = Promise.withResolvers<void>();
  const second = Promise.withResolvers<void>();
  pool.gate = first.promise;
  const bee = post(`${pool.url}/v1/completions`, { ...ask, model: "bee" });
  await until("it is loaded", () => pool.loads.includes("bee"));
  pool.gate = second.promise;
  const cat = complete(pool.url, "cat");
  await until("it waits", () => pool.server.context.registry.state("cat").value === "loading");
  const stopped = post(`${pool.url}/models/unload`, { model: "bee" });
  first.resolve();
  expect(await (await stopped).json()).toEqual({ success: true });
  expect(pool.server.context.registry.state("cat").value).toBe("loading");
  second.resolve();
  expect(await cat).toBe(answers.get("cat"));
  expect((await bee).status).not.toBe(200);
});

test("names that are none stay names: nothing of a request becomes a path", async () => {
  const { url, loads } = await serve({});
  const path = files.get("ant")!.path;
  const hostile = [
    path,
    "../ant",
    "./ant.gguf",
    "..%2fant",
    "ant\0",
    "__proto__",
    "constructor",
    "",
  ];
  for (const model of [...hostile, "a".repeat(5000), "/etc/passwd", "file:///etc/passwd"]) {
    for (const route of ["/v1/completions", "/api/generate", "/models/load"]) {
      const response = await post(`${url}${route}`, { ...ask, model, max_tokens: undefined });
      expect([400, 404], `${route} ${model}`).toContain(response.status);
    }
  }
  expect(loads).toEqual([]);
  const unnamed = await post(`${url}/v1/completions`, ask);
  expect(unnamed.status).toBe(400);
  expect(((await unnamed.json()) as { error: Json }).error.message).toContain(
    "expected one of ant, bee",
  );
});

test("autoload can be turned off, for the server and for a request", async () => {
  const { url } = await serve({ autoload: false });
  await expect(complete(url, "ant")).rejects.toThrow(/404.*model_not_loaded/);
  const asked = await post(`${url}/v1/completions?autoload=true`, { ...ask, model: "ant" });
  expect(asked.status).toBe(200);
  expect(await complete(url, "ant")).toBe(answers.get("ant")); // it is loaded now
});

test("stopping the server while a model is loaded ends the load and those who wait for it", async () => {
  const pool = await serve({});
  const { promise, resolve } = Promise.withResolvers<void>();
  pool.gate = promise;
  const waiting = post(`${pool.url}/v1/completions`, { ...ask, model: "ant" });
  await until("it is loaded", () => pool.loads.length === 1);
  const stopped = closing.splice(0)[0]!();
  setTimeout(resolve, 50);
  const response = await waiting;
  expect(response.status).toBe(503);
  expect(await response.json()).toMatchObject({ error: { code: "server_stopping" } });
  await stopped;
});

test("a model's preset: its system message and sampling, which requests may override", async () => {
  const { url, presets } = await serve({});
  presets.set("ant", { system: "Be brief.", sampling: { maxTokens: 2, temperature: 0 } });
  const messages = [{ role: "user", content: "the cat" }];
  const shown = async (said: object[]): Promise<unknown> =>
    ((await (await post(`${url}/apply-template`, { model: "ant", messages: said })).json()) as Json)
      .prompt;
  expect(await shown(messages)).toBe("<system>Be brief.\n<user>the cat\n<assistant>");
  expect(await shown([{ role: "system", content: "Be long." }, ...messages])).toContain("Be long");
  const chat = async (more: object): Promise<unknown> => {
    const answer = await post(`${url}/v1/chat/completions`, { model: "ant", messages, ...more });
    return ((await answer.json()) as { usage: Json }).usage.completion_tokens;
  };
  expect(await chat({ ignore_eos: true })).toBe(2);
  expect(await chat({ max_tokens: 5, ignore_eos: true })).toBe(5);
});
