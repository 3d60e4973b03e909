// Weights that stay on disk, through open(): the same text as with all weights in memory, beside neighbours and after an abort; the
// memory that was allowed; and what is said when the file changes or nothing can stay there.

import { utimesSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { MemoryError, type Model, type OpenOptions, open, SourceError } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";

const prompt = "the cat sat. ".repeat(4);
let file: Awaited<ReturnType<typeof tinyFile>>;
let expected: readonly (readonly number[])[];
let ramBytes: number;

/** More than the memory for recorded times. */
const recordBytes = 4e6;
const prompts = [prompt, "a e", "the the"];
const greedy = { maxTokens: 12, temperature: 0 } as const;
const options: OpenOptions = { contextSize: 128, tuned: false, threads: 2, parallel: 3 };

const textOf = async (model: Model, text: string): Promise<readonly number[]> =>
  (await model.generate(text, greedy).result).tokenIds;

beforeAll(async () => {
  file = await tinyFile({ layers: 12, feedForward: 2048, weightType: "q8_0" });
  await using model = await open(file.path, options);
  const { weightBytes, kvBytes, workBytes } = (await model.status()).memory;
  ramBytes = Math.floor(kvBytes + workBytes + 0.5 * weightBytes);
  expected = [];
  for (const text of prompts) expected = [...expected, await textOf(model, text)];
});
afterAll(() => file.remove());

test("the same texts one by one, at once, and after an abort; memory is what was allowed", async () => {
  await using model = await open(file.path, { ...options, ramBytes });
  const { disk, weightBytes: all } = model.info;
  expect(disk!.diskBytes).toBeGreaterThan(0);
  expect(disk!.memoryBytes + disk!.diskBytes).toBe(all);
  expect(disk!.tokensPerSecond! * disk!.diskBytes).toBeCloseTo(disk!.bytesPerSecond!, -3);
  const { weightBytes, kvBytes, workBytes } = (await model.status()).memory;
  expect(weightBytes + kvBytes + workBytes).toBeLessThanOrEqual(ramBytes);
  for (const [i, text] of prompts.entries()) expect(await textOf(model, text)).toEqual(expected[i]);
  expect(await Promise.all(prompts.map((text) => textOf(model, text)))).toEqual(expected);
  const abort = new AbortController();
  const stopped = model.generate("the cat", { maxTokens: 100, signal: abort.signal });
  for await (const _ of stopped) abort.abort();
  expect((await stopped.result).stopReason).toBe("aborted");
  const { timings, tokenIds } = await model.generate(prompts[0]!, greedy).result;
  expect(tokenIds).toEqual(expected[0]);
  expect(timings.limits?.generation?.fraction).toBeGreaterThan(0);
});

test("waiting is part of the profile; a file that was written to is no longer read", async () => {
  const recording = { profile: true, ramBytes: ramBytes + recordBytes };
  await using model = await open(file.path, { ...options, ...recording });
  expect(await textOf(model, "a e")).toEqual(expected[1]);
  const ops = (await model.profile()).phases.flatMap((phase) => phase.ops.map(({ name }) => name));
  expect(ops).toContain("disk_wait");
  utimesSync(file.path, new Date(), new Date(Date.now() + 5000));
  const failed = await model.generate("a e", greedy).result.catch((error: unknown) => error);
  expect(failed).toBeInstanceOf(SourceError);
  expect((failed as Error).message).toContain(
    "it was written to since it was opened. Open the model again",
  );
});

test("experts are read on demand: the same text, and what was read is counted", async () => {
  const experts = { architecture: "qwen3moe", expertType: "q8_0", weightType: "q8_0" } as const;
  const mixture = await tinyFile({ ...experts, layers: 12, feedForward: 2048 });
  try {
    const model = await open(mixture.path, options);
    const text = await textOf(model, prompt);
    const { weightBytes, kvBytes, workBytes } = (await model.status()).memory;
    await model.dispose();
    const low = Math.floor(kvBytes + workBytes + 0.75 * weightBytes);
    await using small = await open(mixture.path, { ...options, ramBytes: low });
    expect(small.info.disk?.experts).toMatchObject({ all: 4, used: 2 });
    expect(small.info.backend.notes.join()).toContain("experts are read on demand: memory holds");
    const { tokenIds, timings } = await small.generate(prompt, greedy).result;
    expect(tokenIds).toEqual(text);
    const { hits, misses, promptBytes, generatedBytes } = timings.experts!;
    const { experts: all } = await small.status();
    expect(all!.hits + all!.misses).toBe(hits + misses);
    expect(all!.readBytes).toBe(promptBytes + generatedBytes);
    expect(promptBytes).toBeGreaterThan(0);
  } finally {
    await mixture.remove();
  }
});

test("a model that does not fit is refused with mmap: false, and where too little is allowed", async () => {
  const refused = open(file.path, { ...options, ramBytes, mmap: false });
  await expect(refused).rejects.toThrow(MemoryError);
  await expect(refused).rejects.toThrow(/but it may take [\d.]+ MiB \(ramBytes\)/);
  const tooSmall = open(file.path, { ...options, ramBytes: 4_000_000 });
  await expect(tooSmall).rejects.toThrow(
    /Its weights cannot stay on disk: with all that can, it still needs [\d.]+ MiB, and/,
  );
});
