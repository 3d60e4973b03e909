// How fast the tokenizers are, in MB of UTF-8 text per second, on prose and on a megabyte without a space. Not a test: it
// asserts nothing. Run it with `node bench/tokenizers.ts`; it uses the vocabularies in ../shared where they are there,
// and the tokenizer.json files that test/support/tokenizer-files.ts finds.

import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { tokenizerFromJson } from "../src/tokenizers/from-json.ts";
import { tokenizerFromMetadata } from "../src/tokenizers/from-metadata.ts";
import type { Tokenizer } from "../src/tokenizers/tokenizer.ts";
import { tokenizerFolder } from "../test/support/tokenizer-files.ts";
import { ggufMetadata, readJson } from "../test/tokenizers/support.ts";

const shared: string =
  process.env.LANTERN_SHARED ?? fileURLToPath(new URL("../../shared", import.meta.url));

function prose(): string {
  const path = `${shared}/corpora/wikitext-2-raw-test.txt`;
  if (existsSync(path)) return readFileSync(path, "utf8");
  return "The quick brown fox jumps over the lazy dog, 42 times a day.\n".repeat(20_000);
}

async function tokenizers(): Promise<[string, Tokenizer][]> {
  const found: [string, Tokenizer][] = [];
  for (const name of ["llama-bpe", "qwen2", "gpt-2", "llama-spm", "bert-bge"]) {
    const path = `${shared}/vocab/ggml-vocab-${name}.gguf`;
    if (existsSync(path)) found.push([name, tokenizerFromMetadata(await ggufMetadata(path))]);
  }
  for (const name of ["gpt2", "llama3", "qwen2_5"] as const) {
    const folder = tokenizerFolder(name);
    if (folder === undefined) continue;
    const json = readJson(`${folder}/tokenizer.json`);
    const config = readJson(`${folder}/tokenizer_config.json`);
    found.push([`${name} (json)`, tokenizerFromJson(json, config)]);
  }
  return found;
}

function measure(work: () => void): number {
  const start = performance.now();
  work();
  return (performance.now() - start) / 1000;
}

const text = prose();
const corpora: [string, string][] = [
  ["prose", text],
  ["prose, no spaces", text.replaceAll(/\s+/g, "").slice(0, 1_000_000)],
  ["1 MB of a", "a".repeat(1_000_000)],
  ["1 MB of spaces", " ".repeat(1_000_000)],
];

for (const [name, tokenizer] of await tokenizers()) {
  for (const [title, corpus] of corpora) {
    const megabytes = new TextEncoder().encode(corpus).length / 1e6;
    let ids: number[] = [];
    const first = measure(() => {
      ids = tokenizer.encode(corpus);
    });
    const encode = measure(() => tokenizer.encode(corpus));
    const decode = measure(() => tokenizer.decode(ids));
    const speed = (seconds: number): string => (megabytes / seconds).toFixed(1).padStart(6);
    console.log(
      `${name.padEnd(16)} ${title.padEnd(17)} encode ${speed(first)} MB/s cold ${speed(encode)} MB/s warm, ` +
        `decode ${speed(decode)} MB/s, ${ids.length} tokens`,
    );
  }
}
