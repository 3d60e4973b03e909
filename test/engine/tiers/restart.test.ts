// Through real engine threads: a text that goes on after its model was opened again computes only what is new, and is the text
// that it would have been; with copies in memory, a text whose blocks were evicted comes back.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { open } from "../../../src/index.ts";
import { tinyFile } from "../../support/tiny-file.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-restart-"));
let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => {
  file.remove();
  rmSync(folder, { recursive: true, force: true });
});

const prompt = (length: number, seed: number): number[] =>
  Array.from({ length }, (_, i) => 5 + ((i * seed + i * i) % 40));
const greedy = { temperature: 0, maxTokens: 20, ignoreEos: true };

test("after a restart only what is new is computed, and the text is the same", async () => {
  const warnings: string[] = [];
  const options = {
    cacheDiskBytes: 1e8,
    cacheFolder: folder,
    threads: 2,
    onWarning: (warning: string) => warnings.push(warning),
  };
  let tokens = prompt(70, 3);
  const plain = await open(file.path, { threads: 2 });
  for (let turn = 0; turn < 3; turn++) {
    await using model = await open(file.path, options);
    const known = turn === 0 ? 0 : tokens.length - 8;
    const { tokenIds, timings } = await model.generate(tokens, greedy).result;
    expect(tokenIds).toEqual((await plain.generate(tokens, greedy).result).tokenIds);
    // The last token of an answer is never computed.
    expect(timings.cachedTokens).toBe(Math.max(0, known - 1));
    expect(timings.restored?.diskTokens ?? 0).toBe(timings.cachedTokens);
    tokens = [...tokens, ...tokenIds, ...prompt(8, turn + 5)];
  }
  await plain.dispose();
  expect(warnings).toEqual([]);
});

test("other settings of the same file find nothing of it", async () => {
  const options = { cacheDiskBytes: 1e8, cacheFolder: folder, threads: 1 };
  for (const other of [{ kvType: "f32" }, { level: 2 }] as const) {
    await using model = await open(file.path, { ...options, ...other });
    const { timings } = await model.generate(prompt(70, 3), greedy).result;
    expect(timings.cachedTokens).toBe(0);
  }
});

test("what the KV cache had no room for comes back from memory", async () => {
  await using model = await open(file.path, { cacheRamBytes: 1e8, threads: 1, contextSize: 128 });
  const texts = [1, 2, 3, 4].map((seed) => prompt(90, seed));
  const first: number[][] = [];
  for (const text of texts) first.push((await model.generate(text, greedy).result).tokenIds);
  let restored = 0;
  for (const [i, text] of texts.entries()) {
    const { tokenIds, timings } = await model.generate(text, greedy).result;
    expect(tokenIds).toEqual(first[i]);
    expect(timings.cachedTokens).toBeGreaterThan(60);
    restored += timings.restored?.ramTokens ?? 0;
  }
  expect(restored).toBeGreaterThan(180);
});

test("ten branches of a session, a restart, and each goes on at once", async () => {
  const options = {
    cacheDiskBytes: 1e8,
    cacheFolder: folder,
    threads: 1,
    contextSize: 256,
    parallel: 8,
  };
  const trunk = prompt(100, 11);
  const branches = Array.from({ length: 10 }, (_, i) => [...trunk, ...prompt(20, i + 20)]);
  const texts: number[][] = [];
  {
    await using model = await open(file.path, options);
    for (const branch of branches) {
      texts.push([...branch, ...(await model.generate(branch, greedy).result).tokenIds]);
    }
  }
  await using plain = await open(file.path, { threads: 1, contextSize: 256 });
  await using model = await open(file.path, options);
  for (const text of texts) {
    const next = [...text, 7, 8, 9];
    const { tokenIds, timings } = await model.generate(next, greedy).result;
    expect(tokenIds).toEqual((await plain.generate(next, greedy).result).tokenIds);
    expect(timings.cachedTokens).toBe(text.length - 1);
    expect(timings.restored?.diskTokens).toBeGreaterThan(0);
    expect(timings.computedAgain).toBeUndefined();
  }
});
