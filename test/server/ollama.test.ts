// Ollama's own client manages models: list, show, pull with its progress, copy, create, delete; with a made-up library.

import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ollama } from "ollama";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { catalogLibrary } from "../../apps/cli/serve-library.ts";
import type { ModelLibrary, RunningServer } from "../../apps/server/serve.ts";
import { UsageError } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import {
  all,
  modelId,
  post,
  prompt,
  serveModel,
  type TestServer,
  testServer,
} from "./test-server.ts";

type Listing = Awaited<ReturnType<ModelLibrary["list"]>>[number];

const digests: Record<string, string> = {
  [modelId]: "1".repeat(64),
  "hf:owner/small:Q4_0": "2".repeat(64),
};
let listings: Listing[] = [];
let removed: string[] = [];

function listing(name: string, state: Listing["state"]): Listing {
  const facts = { description: "", licence: "MIT", chat: false, source: "a test" };
  return { name, bytes: 1000, state, ...facts, sha256: digests[name] };
}

const library: Partial<ModelLibrary> = {
  list: async () => listings,
  canDownload: (name) => name.startsWith("hf:"),
  digest: async (name) => digests[name],
  async download(name, { onProgress }) {
    if (name === "hf:owner/missing") throw new UsageError("the hub has no owner/missing");
    onProgress({ loadedBytes: 400, totalBytes: 1000 });
    await new Promise((resolve) => setTimeout(resolve, 5));
    onProgress({ loadedBytes: 1000, totalBytes: 1000 });
    listings = [...listings.filter((one) => one.name !== name), listing(name, "cached")];
    return name;
  },
  async remove(name) {
    removed.push(name);
    listings = listings.filter((one) => one.name !== name);
    return { how: "deleted", bytes: 1000 };
  },
};

let running: TestServer;
let server: RunningServer;
let client: Ollama;

beforeAll(async () => {
  running = await testServer();
  server = await serveModel(running.model, running.log, { library: library as ModelLibrary });
  client = new Ollama({ host: server.url });
  listings = [listing(modelId, "installed"), listing("hf:owner/absent:Q8_0", "absent")];
  removed = [];
});

afterAll(async () => {
  await server.stop();
  await running.close();
  expect(running.log).toEqual([]);
});

const names = async (): Promise<string[]> =>
  (await client.list()).models.map(({ name }) => name).sort((a, b) => a.localeCompare(b));

describe("what there is", () => {
  test("has the digests of its files", async () => {
    const { models } = await client.list();
    expect(models).toMatchObject([{ name: modelId, digest: digests[modelId] }]);
    expect((await client.ps()).models).toMatchObject([{ digest: digests[modelId] }]);
  });

  test("has the size that it takes in memory", async () => {
    const { stateBytesHeld } = await running.model.status();
    const [loaded] = (await client.ps()).models;
    expect(loaded!.size).toBe(running.model.info.weightBytes + stateBytesHeld);
  });

  test("is shown, with or without Ollama's tag", async () => {
    const shown = await client.show({ model: `${modelId}:latest` });
    expect(shown.details).toMatchObject({ family: "llama", format: expect.any(String) });
    expect(shown.modelfile).toBe(`FROM ${modelId}\n`);
    expect(shown.capabilities).toEqual(["completion", "embedding"]);
  });
});

describe("pull", () => {
  test("tells how far it is, line by line, and then there is one more", async () => {
    const lines = await all(await client.pull({ model: "hf.co/owner/small:Q4_0", stream: true }));
    expect(lines[0]).toEqual({ status: "pulling manifest" });
    expect(lines).toContainEqual({
      status: "pulling hf:owner/small:Q4_0",
      total: 1000,
      completed: 1000,
    });
    expect(lines.at(-1)).toEqual({ status: "success" });
    expect(await names()).toEqual(["hf:owner/small:Q4_0", modelId]);
    const shown = await client.show({ model: "hf:owner/small:Q4_0" });
    expect(shown.details.quantization_level).toBe("Q4_0");
    expect(await client.pull({ model: "hf:owner/small:Q4_0", stream: false })).toEqual({
      status: "success",
    });
  });

  test("that fails says why, in Ollama's shape", async () => {
    const failing = async () =>
      await all(await client.pull({ model: "hf:owner/missing", stream: true }));
    await expect(failing()).rejects.toThrow("the hub has no owner/missing");
    await expect(client.pull({ model: "nobody" })).rejects.toThrow(
      /"nobody" is neither known here/,
    );
    const response = await post(`${server.url}/api/pull`, { model: "nobody" });
    expect(response.status).toBe(404);
    expect(await response.json()).toEqual({ error: expect.any(String) });
  });

  test("what is here and not loaded is nobody else's to answer for", async () => {
    const asking = client.generate({ model: "hf:owner/small:Q4_0", prompt });
    await expect(asking).rejects.toThrow(/on this machine but not loaded/);
  });
});

describe("copy, create, delete", () => {
  test("a copy is another name, which answers and can be deleted", async () => {
    await client.copy({ source: modelId, destination: "mine" });
    expect(await names()).toContain("mine");
    const options = { num_predict: 3, temperature: 0 };
    const asked = { prompt, raw: true, options };
    const [first, second] = await Promise.all([
      client.generate({ model: "mine:latest", ...asked }),
      client.generate({ model: modelId, ...asked }),
    ]);
    expect(first.response).toBe(second.response);
    await client.delete({ model: "mine" });
    expect(await names()).not.toContain("mine");
    expect(removed).toEqual([]);
  });

  test("a copy needs a model, and a name of its own", async () => {
    await expect(client.copy({ source: "nobody", destination: "x" })).rejects.toThrow(/not found/);
    const taken = client.copy({ source: modelId, destination: modelId });
    await expect(taken).rejects.toThrow(/there is a model of that name/);
  });

  test("created from a model, with settings of its own", async () => {
    const made = await all(await client.create({ model: "other", from: modelId, stream: true }));
    expect(made.at(-1)).toEqual({ status: "success" });
    expect(await names()).toContain("other");
    await client.create({ model: "y", from: modelId, system: "Be brief." });
    expect((await client.show({ model: "y" })).modelfile).toContain('SYSTEM """Be brief."""');
    await client.delete({ model: "y" });
    const adapted = client.create({
      model: "z",
      from: modelId,
      adapters: { "a.gguf": `sha256:${"0".repeat(64)}` },
    });
    await expect(adapted).rejects.toThrow(/"adapters" is not supported/);
    await client.delete({ model: "other" });
  });

  test("what is loaded stays, what is not is deleted, what is not there is a 404", async () => {
    await expect(client.delete({ model: modelId })).rejects.toThrow(/is loaded/);
    await client.delete({ model: "hf:owner/small:Q4_0" });
    expect(removed).toEqual(["hf:owner/small:Q4_0"]);
    expect(await names()).toEqual([modelId]);
    await expect(client.delete({ model: "nobody" })).rejects.toThrow(/"nobody" not found/);
  });
});

test("sampling fields beside the messages count, those in options before them", async () => {
  const messages = [{ role: "user", content: prompt }];
  const ask = async (fields: object): Promise<string> => {
    const body = { model: modelId, messages, stream: false, ...fields };
    const response = await post(`${server.url}/api/chat`, body);
    return ((await response.json()) as { message: { content: string } }).message.content;
  };
  const options = { num_predict: 12 };
  const greedy = await ask({ options: { ...options, temperature: 0 } });
  expect(await ask({ temperature: 0, options })).toBe(greedy);
  expect(await ask({ temperature: 5, seed: 1, options: { ...options, temperature: 0 } })).toBe(
    greedy,
  );
});

test("without a library nothing is pulled or deleted", async () => {
  const response = await post(`${running.server.url}/api/pull`, { model: "hf:owner/small" });
  expect(response.status).toBe(501);
  expect(await response.json()).toEqual({
    error: expect.stringContaining("does not manage models"),
  });
});

test("a digest is that of the file, computed again when the file has changed", async () => {
  const folder = mkdtempSync(join(tmpdir(), "lantern-digest-"));
  const path = join(folder, "some.gguf");
  const sha256 = (): string => createHash("sha256").update(readFileSync(path)).digest("hex");
  const platform = nodeDownloadPlatform({ LANTERN_CACHE: folder });
  const { digest } = catalogLibrary(platform, {}, { served: { location: path } });
  writeFileSync(path, "one");
  const first = await digest("served");
  expect(first).toBe(sha256());
  writeFileSync(path, "two"); // the same size
  utimesSync(path, 1, 1);
  expect(await digest("served")).toBe(sha256());
  expect(await digest("nobody")).toBeUndefined();
  rmSync(folder, { recursive: true });
});
