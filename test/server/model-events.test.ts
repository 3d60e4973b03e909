// llama.cpp's router: the stream of what happens to models (GET /models/sse), downloads (POST /models) and deletions (DELETE /models),
// with the events and fields that its own server sends.
// Held against: the events of llama.cpp's own server.

import { afterAll, beforeAll, expect, test } from "vitest";
import { type ModelEvent, ModelEvents } from "../../apps/server/models/events.ts";
import {
  type ModelLibrary,
  type OnDemandModel,
  type RunningServer,
  type StartOptions,
  startServer,
} from "../../apps/server/serve.ts";
import { open, SourceError } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { post } from "./test-server.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
let server: RunningServer;
/** A download goes on when this resolves. */
let gate = Promise.withResolvers<void>();
const removed: string[] = [];
const found: OnDemandModel[] = [
  { id: "ant", aliases: [], file: "ant.gguf", bytes: 9, source: "models_dir" },
  { id: "broken", aliases: [], file: "broken.gguf", bytes: 9, source: "models_dir" },
  { id: "bee", aliases: [], file: "bee.gguf", bytes: 9, source: "cache" },
];

beforeAll(async () => {
  file = await tinyFile({ seed: 1 });
  const onDemand: NonNullable<StartOptions["onDemand"]> = {
    list: async () => found,
    open: (id, task) =>
      open(id === "broken" ? "/nowhere/broken.gguf" : file.path, { threads: 1, ...task }),
    needs: async () => 0,
    preset: () => undefined,
    aliased: () => undefined,
    derive: async () => {},
    forget: () => false,
    version: () => "",
  };
  const listed = (name: string) => ({ name, state: "cached", bytes: 9, chat: true });
  const library = {
    list: async () => found.filter(({ source }) => source === "cache").map(({ id }) => listed(id)),
    canDownload: (name: string) => name.startsWith("owner/"),
    async download(name: string, { signal, onProgress }: Parameters<ModelLibrary["download"]>[1]) {
      onProgress({ loadedBytes: 1, totalBytes: 4 });
      const stopped = Promise.withResolvers<void>();
      signal.addEventListener("abort", () => stopped.reject(signal.reason as Error));
      await Promise.race([gate.promise, stopped.promise]);
      if (name === "owner/gone") throw new SourceError("the hub has no owner/gone");
      found.push({ id: name, aliases: [], file: "new.gguf", bytes: 9, source: "cache" });
      return name;
    },
    locate: async () => undefined,
    remove: async (name: string) => void removed.push(name),
  };
  server = await startServer({
    ...{ models: {}, version: "test", port: 0, graceMs: 20_000, token: false, onDemand },
    library: library as unknown as ModelLibrary,
  });
});
afterAll(() => file.remove());

interface Feed {
  readonly events: ModelEvent[];
  /** Resolves when the server has closed the stream. */
  readonly ended: Promise<void>;
}

async function follow(): Promise<Feed> {
  const response = await fetch(`${server.url}/models/sse`);
  expect(response.headers.get("content-type")).toContain("text/event-stream");
  const events: ModelEvent[] = [];
  const read = async (): Promise<void> => {
    let text = "";
    for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      const all = text.split("\n\n");
      text = all.pop()!;
      for (const one of all) {
        if (one.startsWith("data: ")) events.push(JSON.parse(one.slice(6)) as ModelEvent);
      }
    }
  };
  return { events, ended: read() };
}

type Json = Record<string, unknown>;
const ask = async (path: string, model: string): Promise<Json> =>
  (await (await post(`${server.url}${path}`, { model })).json()) as Json;
const remove = async (model: string): Promise<Json> =>
  (await (await fetch(`${server.url}/models?model=${model}`, { method: "DELETE" })).json()) as Json;
const entry = async (id: string): Promise<Json | undefined> => {
  const { data } = (await (await fetch(`${server.url}/models?reload=1`)).json()) as {
    data: Json[];
  };
  return data.find((one) => one.id === id);
};
const told = ({ events }: Feed, model: string): unknown[] =>
  events
    .filter((one) => one.model === model && !Object.hasOwn(one.data ?? {}, "progress"))
    .map(({ event, data }) => ({ event, ...data }));

test("who follows is told of loads, unloads and failures, and let go when the server stops", async () => {
  const feed = await follow();
  expect(await ask("/models/load", "ant")).toEqual({ success: true });
  const loading = { event: "model_status", status: "loading" };
  const loaded = { event: "status_change", status: "loaded" };
  await expect.poll(() => told(feed, "ant")).toEqual([loading, loaded]);
  expect(await entry("ant")).toMatchObject({
    ...{ status: { value: "loaded" }, source: "models_dir", can_remove: false },
    architecture: { input_modalities: ["text"], output_modalities: ["text"] },
  });
  const progress = feed.events.find(({ data }) => data && Object.hasOwn(data, "progress"));
  expect(progress ?? null).toMatchObject({
    data: {
      progress: { stages: ["text_model"], current: "text_model", value: expect.any(Number) },
    },
  });
  expect(await ask("/models/unload", "ant")).toEqual({ success: true });
  const unloaded = { event: "status_change", status: "unloaded", exit_code: 0 };
  await expect.poll(() => told(feed, "ant")).toEqual([loading, loaded, unloaded]);
  await ask("/models/load", "broken");
  const failed = { event: "status_change", status: "unloaded", exit_code: 1 };
  await expect.poll(() => told(feed, "broken")).toMatchObject([loading, failed]);
  expect(await entry("broken")).toMatchObject({
    status: { value: "unloaded", failed: true, exit_code: 1 },
  });
  const { role, models_autoload } = (await (await fetch(`${server.url}/props`)).json()) as Json;
  expect({ role, models_autoload }).toEqual({ role: "router", models_autoload: true });
});

test("downloads are begun, shown, stopped and told; what is in the cache can be removed", async () => {
  const feed = await follow();
  expect(await ask("/models", "owner/new")).toEqual({ success: true });
  expect(await entry("owner/new")).toMatchObject({
    status: { value: "downloading", progress: { "owner/new": { done: 1, total: 4 } } },
  });
  gate.resolve();
  const finished = { event: "download_finished" };
  await expect.poll(() => told(feed, "owner/new")).toEqual([finished]);
  expect(feed.events).toContainEqual({
    model: "owner/new",
    event: "download_progress",
    data: { progress: { "owner/new": { done: 1, total: 4 } } },
  });
  expect(await ask("/models", "owner/new")).toMatchObject({ error: { code: "model_exists" } });
  expect(await ask("/models", "nonsense")).toMatchObject({ error: { code: "model_not_found" } });
  await ask("/models", "owner/gone");
  const failed = { event: "download_failed", error: "the hub has no owner/gone" };
  await expect.poll(() => told(feed, "owner/gone")).toEqual([failed]);

  gate = Promise.withResolvers();
  await ask("/models", "owner/slow");
  expect(await ask("/models/unload", "owner/slow")).toEqual({ success: true });
  const stopped = { event: "download_failed", error: "it was stopped" };
  await expect.poll(() => told(feed, "owner/slow")).toEqual([stopped]);
  expect(await entry("owner/slow")).toBeUndefined();

  expect(await remove("ant")).toMatchObject({ error: { code: "not_deletable" } });
  expect(await remove("nobody")).toMatchObject({ error: { code: "model_not_found" } });
  expect(await remove("")).toMatchObject({
    error: { message: expect.stringContaining("?model=") },
  });
  expect(await remove("bee")).toEqual({ success: true });
  expect(removed).toEqual(["bee"]);
  await expect.poll(() => told(feed, "bee")).toEqual([{ event: "model_remove" }]);

  let isStopped = false;
  const stopping = server.stop().then(() => {
    isStopped = true;
  });
  await feed.ended; // at once, not after the grace period
  expect(isStopped).toBe(false);
  await stopping;
});

test("a reader that does not read has the latest progress only, and is cut off when too much waits", async () => {
  let now = 0;
  const events = new ModelEvents(() => now);
  const slow = events.follow(new AbortController().signal);
  const leave = new AbortController();
  const fast = events.follow(leave.signal);
  for (let bytes = 0; bytes < 50; bytes++) {
    now += 1000;
    events.downloaded("a", bytes, 50);
  }
  events.downloaded("a", 50, 50); // too soon after the last
  const first = await fast.next();
  expect(first.value).toMatchObject({ data: { progress: { a: { done: 49 } } } });
  leave.abort();
  expect(await fast.next()).toEqual({ done: true, value: undefined });
  for (let at = 0; at < 2000; at++) events.emit({ model: "b", event: "model_remove" });
  const seen: unknown[] = [];
  for await (const event of slow) seen.push(event);
  expect(seen.length).toBeLessThan(2000);
});
