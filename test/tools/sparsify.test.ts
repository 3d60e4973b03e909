// Predictors of neurons from end to end: sparsify() fits them to a model that they can fit, and open() uses them.
// Held against: a model whose open neurons are known.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { open, perplexity, type SparsifyResult, sparsify } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";
import { reluFile } from "../support/relu-file.ts";
import { tinyGguf } from "../support/tiny-file.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-sparsify-"));
const model = join(folder, "relu.gguf");
const predictors = join(folder, "predictors.gguf");
const words = [
  "the",
  "cat",
  "sat",
  "on",
  "a",
  "mat",
  "and",
  "saw",
  "rain",
  "fall",
  "over",
  "hills",
];
const text = Array.from({ length: 900 }, (_, i) => words[(i * i + 3 * i) % 12]).join(" ");
let made: SparsifyResult;

beforeAll(async () => {
  writeFileSync(model, await tinyGguf(reluFile()));
  made = await sparsify(model, text, predictors, { rank: 32, tokens: 600, threads: 1 });
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

const quick = { threads: 1, contextSize: 256 } as const;

test("gates of low rank are predicted, on tokens that were not fitted", () => {
  expect(made.layers.map(({ layer }) => layer)).toEqual([0, 1]);
  for (const { open: above, computed, recall, precision } of made.layers) {
    expect(above).toBeLessThan(0.4);
    expect(above).toBeGreaterThan(0.02);
    expect(recall).toBeGreaterThan(0.9);
    expect(precision).toBeGreaterThan(0.9);
    expect(computed).toBeLessThan(1.1 * above);
  }
});

test("a model with them leaves out rows of gates, and predicts a text about as well", async () => {
  const options = { contextSize: 128, chunks: 2 };
  const exact = await perplexity(model, text, { ...options, open: { threads: 1, sparse: false } });
  const rough = await perplexity(model, text, { ...options, open: { threads: 1, predictors } });
  expect(rough.perplexity.value).not.toBe(exact.perplexity.value);
  expect(rough.perplexity.value / exact.perplexity.value).toBeCloseTo(1, 1);
  await using opened = await open(model, { ...quick, predictors });
  const { notes } = opened.info.backend;
  expect(notes.join("\n")).toMatch(/ffn_gate: q8_0, rows whose gate \(blk\..*ffn_gate_scores\)/);
  // A token alone and in a batch.
  const long = await opened.generate("the cat", { maxTokens: 12, temperature: 0 }).result;
  await using again = await open(model, { ...quick, predictors, speculate: false });
  const plain = await again.generate("the cat", { maxTokens: 12, temperature: 0 }).result;
  expect(plain.tokenIds).toEqual(long.tokenIds);
});

test("with all neurons found, the text is that of the whole model", async () => {
  const all = join(folder, "all.gguf");
  await sparsify(model, text, all, { rank: 32, tokens: 600, threads: 1, recall: 1 });
  const textWith = async (options: object) => {
    await using opened = await open(model, { ...quick, ...options });
    return (await opened.generate("the cat sat", { maxTokens: 16, temperature: 0 }).result).text;
  };
  expect(await textWith({ predictors: all })).toBe(await textWith({ sparse: false }));
});

test("what makes no sense is refused by name", async () => {
  await expect(open(model, { ...quick, sparse: "predict" })).rejects.toThrow(
    /predictors: relu.gguf has none .*lantern sparsify/,
  );
  await expect(open(model, { ...quick, predictors, sparse: true })).rejects.toThrow(
    /sparse: got true, expected "predict"/,
  );
  await expect(open(model, { ...quick, predictors, level: 2 })).rejects.toThrow(
    /none of the model's neurons can be left out/,
  );
  const silu = join(folder, "silu.gguf");
  writeFileSync(silu, await tinyGguf());
  await expect(sparsify(silu, text, join(folder, "none.gguf"))).rejects.toThrow(
    /no feed-forward network of silu.gguf has a ReLU/,
  );
  await expect(sparsify(model, "cat", join(folder, "none.gguf"))).rejects.toThrow(
    /got \d+ tokens? of text, expected at least/,
  );
  await expect(sparsify(model, text, predictors)).rejects.toThrow(/exists/);
  await expect(sparsify(model, text, "x", { rank: 33 })).rejects.toThrow(/multiple of 32/);
  const aborted = sparsify(model, text, join(folder, "none.gguf"), { signal: AbortSignal.abort() });
  await expect(aborted).rejects.toThrow(/aborted/);
});

test("lantern perplexity shows both, of all neurons and of those that are predicted", async () => {
  const terminal = new FakeTerminal();
  terminal.files.set("text.txt", text);
  const downloads = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });
  const line = [
    "perplexity",
    "-m",
    model,
    "-t",
    "1",
    "-c",
    "64",
    "--chunks",
    "2",
    "-f",
    "text.txt",
  ];
  expect(await main([...line, "--predictors", predictors], terminal, downloads)).toBe(0);
  expect(terminal.stdout).toMatch(
    /^ +perplexity +tokens\/s\nall neurons +\d+\.\d{4} ± .*\nsparse +\d+\.\d{4} ± .*\n\nsparse is -?\d+\.\d{3} % higher; 2 windows of 64 tokens, /,
  );
});
