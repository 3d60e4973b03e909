// llama.cpp's slots over HTTP: saved, restored and erased as in that server's own tests; pinned by id_slot; prompts that are not to
// be reused; contexts that shift.

import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { open } from "../../src/index.ts";
import { modelId, post, serveModel, type TestServer, testServer, until } from "./test-server.ts";

type Json = Record<string, unknown> & { timings: Record<string, unknown> };

const folder = mkdtempSync(join(tmpdir(), "lantern-slots-"));
let running: TestServer;
let url: string;
beforeAll(async () => {
  running = await testServer({ slotSavePath: folder, parallel: 3 });
  url = running.server.url;
});
afterAll(async () => {
  await running.close();
  rmSync(folder, { recursive: true, force: true });
});

async function ask(path: string, body: object, status = 200, at: string = url): Promise<Json> {
  const response = await post(`${at}${path}`, body);
  const answer = (await response.json()) as Json;
  expect(response.status, JSON.stringify(answer)).toBe(status);
  return answer;
}

const first = "What is the capital of France?";
const second = "What is the capital of Germany?";
const complete = (prompt: string, more: object = {}, at: string = url): Promise<Json> =>
  ask("/completion", { prompt, temperature: 0, n_predict: 20, ...more }, 200, at);

test("a slot is saved, restored elsewhere, and erased", async () => {
  const { timings, tokens_evaluated: promptTokens } = await complete(first, { id_slot: 1 });
  expect(timings.prompt_n).toBe(promptTokens);
  const saved = await ask("/slots/1?action=save", { filename: "slot1.bin" });
  const count = (promptTokens as number) + 19; // the last token of an answer is never computed
  const file = join(folder, "slot1.bin");
  expect(saved).toEqual({
    id_slot: 1,
    filename: "slot1.bin",
    n_saved: count,
    n_written: statSync(file).size,
    timings: { save_ms: expect.any(Number) },
  });
  if (process.platform !== "win32") expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readdirSync(folder)).toEqual(["slot1.bin"]);
  const erased = await ask("/slots/1?action=erase", {});
  expect(erased).toEqual({ id_slot: 1, n_erased: (promptTokens as number) + 20 });
  const again = await complete(first, { id_slot: 1 });
  expect(again.timings.prompt_n).toBe(promptTokens);
  // In another process of the server, which knows nothing.
  await using model = await open(modelId, { threads: 1, parallel: 2 });
  const other = await serveModel(model, [], { slotSavePath: folder, parallel: 2 });
  const restored = await ask("/slots/0?action=restore", { filename: "slot1.bin" }, 200, other.url);
  expect(restored).toEqual({
    id_slot: 0,
    filename: "slot1.bin",
    n_restored: count,
    n_read: saved.n_written,
    timings: { restore_ms: expect.any(Number) },
  });
  const known = await complete(first, { id_slot: 0 }, other.url);
  expect(known.timings).toMatchObject({ prompt_n: 1, cache_n: (promptTokens as number) - 1 });
  expect(known.content).toBe(again.content);
  const branch = await complete(second, { id_slot: 0 }, other.url);
  expect(branch.timings.cache_n).toBeGreaterThan(1);
  expect(branch.content).toBe((await complete(second)).content);
  await other.stop();
});

test("only saved state is replaced: nothing else of that name in the folder is lost", async () => {
  await complete(first, { id_slot: 2 });
  const save = async (filename: string, status: number): Promise<string> => {
    const { error } = await ask("/slots/2?action=save", { filename }, status);
    return (error as { message: string } | undefined)?.message ?? "";
  };
  const keys = join(folder, "keys");
  writeFileSync(keys, "sk-1\nsk-2\n");
  expect(await save("keys", 400)).toBe(
    'Unable to save slot: output: "keys" exists and is no saved state of Lantern, so it is not replaced. Choose another name',
  );
  expect(readFileSync(keys, "utf8")).toBe("sk-1\nsk-2\n");
  expect(await save("mine.bin", 200)).toBe("");
  expect(await save("mine.bin", 200)).toBe("");
  symlinkSync("mine.bin", join(folder, "link"));
  mkdirSync(join(folder, "place"));
  expect(await save("link", 400)).toContain('"link" exists and is a link');
  expect(await save("place", 400)).toContain('"place" exists and is a folder');
  for (const filename of ["keys", "place"]) {
    const { error } = await ask("/slots/2?action=restore", { filename }, 400);
    expect((error as { message: string }).message).not.toContain(folder);
  }
  for (const name of ["keys", "mine.bin", "link", "place"]) {
    rmSync(join(folder, name), { recursive: true });
  }
});

test("what cannot be done is refused with the reason, and nothing is written", async () => {
  const message = async (path: string, body: object, status: number): Promise<string> => {
    const { error } = await ask(path, body, status);
    return (error as { message: string }).message;
  };
  const plain = await serveModel(running.model, []);
  const none = await post(`${plain.url}/slots/0?action=erase`, {});
  expect(none.status).toBe(501);
  expect(await none.text()).toContain("Start it with `--slot-save-path`");
  await plain.stop();
  const names = [
    "../x",
    "a/b",
    "a\\b",
    "",
    ".",
    "..",
    "x.",
    " x",
    "a:b",
    "a\u0000b",
    "x".repeat(256),
  ];
  for (const filename of names) {
    expect(await message("/slots/1?action=save", { filename }, 400)).toContain("Invalid filename");
  }
  expect(await message("/slots/9?action=erase", {}, 400)).toContain("Invalid slot ID");
  expect(await message("/slots/x?action=erase", {}, 400)).toContain("Invalid slot ID");
  expect(await message("/slots/0?action=copy", {}, 400)).toContain("Invalid action");
  expect(await message("/slots/0", {}, 400)).toContain("Invalid action");
  await ask("/slots/0?action=erase", {});
  const filename = "bad.bin";
  expect(await message("/slots/0?action=save", { filename }, 400)).toContain("Unable to save slot");
  expect(await message("/slots/0?action=restore", { filename }, 400)).toContain(
    "Unable to restore slot",
  );
  await complete(first, { id_slot: 0 });
  await ask("/slots/0?action=save", { filename });
  const bytes = readFileSync(join(folder, filename));
  bytes[bytes.length - 100]! ^= 4;
  writeFileSync(join(folder, filename), bytes);
  const damaged = await message("/slots/0?action=restore", { filename }, 400);
  expect(damaged).toContain('saved state "bad.bin" is not used: it is damaged');
  // It still has what it had.
  expect((await complete(first, { id_slot: 0 })).timings.prompt_n).toBe(1);
  await ask("/completion", { prompt: first, id_slot: 77 }, 400);
});

test("a request waits for the slot that it asks for, and the list shows both", async () => {
  const long = complete("Once upon a time", { id_slot: 2, n_predict: 150, ignore_eos: true });
  const slots = running.server.context.slots.all;
  await until("it runs", () => slots[2]!.isBusy);
  const waiting = complete("The end", { id_slot: 2, n_predict: 2 });
  const beside = await complete("Another", { n_predict: 1 });
  expect(beside.id_slot).not.toBe(2);
  const list = (await (await fetch(`${url}/slots`)).json()) as Json[];
  expect(list).toHaveLength(3);
  expect(list[2]).toMatchObject({ id: 2, n_ctx: 256, speculative: true, is_processing: true });
  await long;
  expect(await waiting).toMatchObject({ id_slot: 2, tokens_predicted: 2 });
  const after = (await (await fetch(`${url}/slots`)).json()) as Json[];
  expect(after[2]).toMatchObject({
    is_processing: false,
    params: { n_predict: 2 },
    next_token: [{ has_next_token: false, n_decoded: 2, n_remain: 0 }],
  });
  // The slot whose text begins like the prompt is chosen.
  expect((await complete("The end of", { n_predict: 1 })).id_slot).toBe(2);
});

test("cache_prompt: false computes the whole prompt", async () => {
  const text = `${first} ${first}`;
  const { tokens_evaluated: all, content } = await complete(text);
  expect((await complete(text)).timings).toMatchObject({ prompt_n: 1 });
  const computed = await complete(text, { cache_prompt: false });
  expect(computed.timings).toMatchObject({ prompt_n: all, cache_n: 0 });
  expect(computed.content).toBe(content);
  await ask("/completion", { prompt: text, cache_prompt: "no" }, 400);
});

describe("context shift", () => {
  const lines: string[] = [];
  test("a full context goes on, says so, and keeps what it is told to", async () => {
    await using model = await open(modelId, { threads: 1, contextSize: 64 });
    const sampling = { contextShift: true };
    const server = await serveModel(model, lines, { sampling, parallel: 1 });
    const body = { n_predict: 100, ignore_eos: true, n_keep: 5 };
    const answer = await complete("Once upon a time", body, server.url);
    expect(answer).toMatchObject({ truncated: true, tokens_predicted: 100, stop_type: "limit" });
    // BOS counts; half of the 57 others, twice
    expect(answer.timings).toMatchObject({ context_shift_n: 2, context_shift_discarded_n: 56 });
    expect(lines.filter((line) => line.includes("was shifted: the first 6"))).toHaveLength(2);
    const messages = [{ role: "user", content: "Once" }];
    const chat = { messages, max_tokens: 90, ignore_eos: true };
    const said = await ask("/v1/chat/completions", chat, 200, server.url);
    expect(said.timings.context_shift_n).toBeGreaterThan(0);
    // A prompt that does not fit is refused as ever.
    const prompt = Array.from({ length: 64 }, () => 400);
    await ask("/completion", { prompt }, 400, server.url);
    await server.stop();
    const usual = await serveModel(model, [], { parallel: 1 });
    const ended = await complete("Once upon a time", body, usual.url);
    expect(ended).toMatchObject({ truncated: true, stop_type: "limit" });
    expect(ended.timings.context_shift_n).toBeUndefined();
    expect((answer.content as string).startsWith((ended.content as string).slice(0, 100))).toBe(
      true,
    );
    await usual.stop();
  });
});
