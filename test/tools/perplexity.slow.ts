// llama.cpp's perplexities of files that take longer: every type of stories15M there is, and TinyLlama on wikitext-2.
// Downloads TinyLlama once.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { resolveModel } from "../../src/catalog/resolve.ts";
import { perplexity } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { describeShared, sharedPath } from "../support/shared.ts";

describeShared("llama.cpp's numbers", "corpora", () => {
  const stories = readFileSync(sharedPath("corpora/tinystories_sample.txt"), "utf8");
  const wiki = readFileSync(sharedPath("corpora/wikitext-2-raw-test.txt"), "utf8");

  test.each([
    ["Q8_0", 5.242],
    ["Q4_0", 5.431],
    ["Q4_K_M", 5.592],
  ])("stories15M in %s, window 128", async (type, expected) => {
    const path = sharedPath(`models/stories15M/stories15M-${type}.gguf`);
    const found = await perplexity(path, stories, { contextSize: 128 });
    expect(Math.abs(found.perplexity.value / expected - 1)).toBeLessThan(0.005);
  });

  // A mixture of experts and a scan, both random: llama-perplexity -c 64 of the first 6000 bytes.
  test.each([
    ["qwen3moe", 12172.0932],
    ["mamba2", 1862.6879],
  ])("a tiny %s", async (name, expected) => {
    const path = sharedPath(`archs/${name}.gguf`);
    const found = await perplexity(path, stories.slice(0, 6000), { contextSize: 64 });
    expect(Math.abs(found.perplexity.value / expected - 1)).toBeLessThan(1e-4);
  });

  test.each([
    ["stories15m", "F32", stories, { contextSize: 128 }, 5.234],
    ["tinyllama-chat", "IQ2_XXS", wiki, { contextSize: 256, chunks: 3 }, 15.29],
  ] as const)("%s in %s", async (name, _type, text, options, expected) => {
    const path = await resolveModel(name, { platform: nodeDownloadPlatform() });
    const found = await perplexity(path, text, options);
    expect(Math.abs(found.perplexity.value / expected - 1)).toBeLessThan(0.005);
  });
});
