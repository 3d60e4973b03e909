// The input of `lantern batch`: a first line of any length is read in one pass (looking again at all of it for each piece took minutes),
// and an interrupt ends the reading where it is.
// Held against: routes and errors of lines written here.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openLocalBatch } from "../../apps/batch/local-batch.ts";
import { hashedInput } from "../../src/platform/node-batch.ts";
import { batchPlace } from "./batch-store.ts";

let folder: string;
let place: ReturnType<typeof batchPlace>;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-input-"));
  place = batchPlace();
});
afterEach(() => {
  rmSync(folder, { recursive: true });
  place.remove();
});

const line = (id: string, prompt: string, url = "/v1/completions"): string =>
  `${JSON.stringify({ custom_id: id, body: { prompt }, method: "POST", url })}\n`;

async function open(text: string): Promise<string> {
  const file = join(folder, "in.jsonl");
  writeFileSync(file, text);
  const store = place.open();
  try {
    const input = await hashedInput(file, new AbortController().signal);
    return (await openLocalBatch(store, input)).batch.endpoint;
  } finally {
    store.close();
  }
}

test("a first line of 15 MB, with its url at the end; empty lines before it", async () => {
  expect(await open(`\n\n${line("a", "x ".repeat(7_500_000))}`)).toBe("/v1/completions");
});

test("a url inside of the body is not the route", async () => {
  const body = { messages: [{ content: [{ image_url: { url: "data:" } }] }] };
  const request = { custom_id: "a", body, method: "POST", url: "/v1/chat/completions" };
  expect(await open(JSON.stringify(request))).toBe("/v1/chat/completions");
});

test("where no line can be read, the first problem is said; where one can, all are said later", async () => {
  await expect(open("x".repeat(20_000_000))).rejects.toThrow(
    'batch: "in.jsonl": line 1 has 20000000 bytes, and a line may have 16777216, expected {"custom_id"',
  );
  await expect(open("\n \n")).rejects.toThrow('batch: "in.jsonl": it has no request');
  expect(await open(`nonsense\n${line("a", "x", "/v1/embeddings")}`)).toBe("/v1/embeddings");
});

test("an interrupt ends it in the middle of the file", async () => {
  const file = join(folder, "in.jsonl");
  writeFileSync(file, line("a", "x".repeat(4_000_000)));
  const stop = new AbortController();
  const input = await hashedInput(file, stop.signal);
  const reading = input.pieces()[Symbol.asyncIterator]();
  await reading.next();
  stop.abort();
  const rest = async (): Promise<void> => {
    while ((await reading.next()).done !== true);
  };
  await expect(rest()).rejects.toThrow("the batch was aborted");
  await expect(hashedInput(file, stop.signal)).rejects.toThrow("the batch was aborted");
});

test("what is no file is refused: it is read more than once", async () => {
  await expect(hashedInput(folder, new AbortController().signal)).rejects.toThrow(
    "is not a regular file",
  );
});
