// llama.cpp's LoRA adapters over HTTP: listed, scaled for all requests, and chosen by each.
// Held against: the texts with each adapter alone and with none.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { RunningServer } from "../../apps/server/serve.ts";
import { type Model, open } from "../../src/index.ts";
import { adapterFile } from "../support/adapter-file.ts";
import { tinyModel } from "../support/tiny-engine.ts";
import { tinyFile, tinyFileVocab } from "../support/tiny-file.ts";
import { post, serveModel } from "./test-server.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-lora-"));
const log: string[] = [];
let file: Awaited<ReturnType<typeof tinyFile>>;
let model: Model;
let server: RunningServer;
let adapter: string;
beforeAll(async () => {
  const tiny = tinyModel({ vocab: tinyFileVocab });
  file = await tinyFile({ model: tiny });
  adapter = await adapterFile(folder, "style", tiny.tensors, {
    size: 0.6,
    more: [["adapter.lora.task_name", { type: "string", value: "style" }]],
  });
  model = await open(file.path, { threads: 1, adapters: [{ location: adapter, scale: 0 }] });
  server = await serveModel(model, log);
});
afterAll(async () => {
  await server?.stop();
  await model?.dispose();
  file?.remove();
  rmSync(folder, { recursive: true, force: true });
});

async function complete(more: object = {}): Promise<string> {
  const body = { prompt: "the cat sat", temperature: 0, n_predict: 12, ignore_eos: true, ...more };
  const response = await post(`${server.url}/completion`, body);
  const answer = (await response.json()) as { content: string; error?: { message: string } };
  return answer.content ?? answer.error!.message;
}

const chat = async (more: object): Promise<string> => {
  const response = await post(`${server.url}/v1/chat/completions`, {
    messages: [{ role: "user", content: "the cat" }],
    temperature: 0,
    max_tokens: 12,
    ignore_eos: true,
    ...more,
  });
  const { choices } = (await response.json()) as { choices: { message: { content: string } }[] };
  return choices[0]!.message.content;
};

const list = async () => await (await fetch(`${server.url}/lora-adapters`)).json();

test("adapters are listed, scaled for all requests, and chosen by each", async () => {
  const entry = { id: 0, path: basename(adapter), task_name: "style", prompt_prefix: "" };
  expect(await list()).toEqual([{ ...entry, scale: 0 }]);
  const without = await complete();
  const withIt = await complete({ lora: [{ id: 0, scale: 1 }] });
  expect(withIt).not.toBe(without);
  expect(await chat({ lora: [{ id: 0, scale: 1 }] })).not.toBe(await chat({}));
  const set = await post(`${server.url}/lora-adapters`, [{ id: 0, scale: 1 }]);
  expect(await set.json()).toEqual({ success: true });
  expect(await list()).toEqual([{ ...entry, scale: 1 }]);
  expect(await complete()).toBe(withIt);
  expect(await complete({ lora: [] })).toBe(without);
  await post(`${server.url}/lora-adapters`, []);
  expect(await complete()).toBe(without);
});

test("what is wrong is said", async () => {
  expect(await complete({ lora: [{ id: 3, scale: 1 }] })).toMatch(/got the id 3, expected/);
  expect(await complete({ lora: "style" })).toMatch(/lora/);
  const refused = await post(`${server.url}/lora-adapters`, { id: 0 });
  expect(refused.status).toBe(400);
  expect(await refused.text()).toMatch(/expected a list as/);
  const unknown = await post(`${server.url}/lora-adapters`, [{ id: 1, scale: 1 }]);
  expect(unknown.status).toBe(400);
});
