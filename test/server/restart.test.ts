// A conversation of the web app and one of a client go on after the server and its model were started again: only what is new is
// computed, and the answers are those of a server that was never stopped. The model is a real one of 15M parameters.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import type { Message, Session } from "../../apps/sessions/session.ts";
import { open } from "../../src/index.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { follow, request } from "./lantern-client.ts";
import { modelId, post, serveModel } from "./test-server.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-restart-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const log: string[] = [];

/** A server with a model of its own, from the first to the last request of `work`. */
async function life<T>(name: string, work: (url: string) => Promise<T>): Promise<T> {
  const cacheFolder = join(folder, name);
  const options = { threads: 1, contextSize: 256, cacheDiskBytes: 1e9, cacheFolder };
  await using model = await open(modelId, options);
  const sessions = () => openNodeDatabase(join(folder, `${name}.sqlite`));
  const server = await serveModel(model, log, { sessions, graceMs: 0 });
  try {
    return await work(server.url);
  } finally {
    await server.stop();
  }
}

const content = "Tell me a long story about a cat, a dog and a bird who live near the sea. ".repeat(
  7,
);

async function say(url: string, id: string, text: string): Promise<Message> {
  const base = `${url}/lantern/v1`;
  const asked = await request<{ answers: Message[]; run: { id: string } }>(
    ...[`${base}/sessions/${id}/messages`, "POST", { content: text }, 201],
  );
  await follow(`${base}/runs/${asked.run.id}/events`);
  const { messages } = await request<{ messages: Message[] }>(`${base}/sessions/${id}/messages`);
  return messages.find((message) => message.id === asked.answers[0]!.id)!;
}

async function newSession(url: string): Promise<string> {
  const settings = { temperature: 0, maxTokens: 24 };
  const made = await request<Session>(`${url}/lantern/v1/sessions`, "POST", { settings }, 201);
  return made.id;
}

test("a conversation of the web app", async () => {
  const [id, first] = await life("app", async (url) => {
    const session = await newSession(url);
    return [session, await say(url, session, content)];
  });
  const second = await life("app", (url) => say(url, id, "And then?"));
  const alone = await life("other", async (url) => {
    const session = await newSession(url);
    return [await say(url, session, content), await say(url, session, "And then?")];
  });
  expect([first.content, second.content]).toEqual(alone.map((message) => message.content));
  expect(second.tokens!.cached).toBeGreaterThan(32);
});

test("/v1/chat/completions with the same beginning", async () => {
  const body = { messages: [{ role: "user", content }], max_tokens: 8, temperature: 0 };
  const ask = async (url: string) =>
    (await (await post(`${url}/v1/chat/completions`, body)).json()) as {
      choices: { message: { content: string } }[];
      usage: { prompt_tokens_details: { cached_disk_tokens: number } };
    };
  const before = await life("client", ask);
  const after = await life("client", ask);
  expect(after.choices[0]!.message).toEqual(before.choices[0]!.message);
  expect(after.usage.prompt_tokens_details.cached_disk_tokens).toBeGreaterThan(32);
  expect(log).toEqual([]);
});
