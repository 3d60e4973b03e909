// Vocabularies that do not fit their model are refused when it is opened, before anything is built from them.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { ModelError } from "../../src/base/errors.ts";
import type { Metadata } from "../../src/base/metadata.ts";
import { parseJsonObject } from "../../src/formats/json.ts";
import { open } from "../../src/index.ts";
import { tokenizerFromJson } from "../../src/tokenizers/from-json.ts";
import { tokenizerFromMetadata } from "../../src/tokenizers/from-metadata.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";
import { tinyFile } from "../support/tiny-file.ts";

/** Metadata that counts without having: whoever decodes an array has failed. */
function claims(
  counts: Readonly<Record<string, number>>,
  values: Readonly<Record<string, string | number>> = {},
): Metadata {
  const decode = (): never => {
    throw new Error("it was decoded");
  };
  return {
    keys: () => [][Symbol.iterator](),
    has: (key) => key in counts || key in values,
    string: (key) => values[key] as string | undefined,
    number: (key) => values[key] as number | undefined,
    boolean: () => undefined,
    arrayLength: (key) => counts[key.replace("tokenizer.ggml.", "")],
    strings: decode,
    numbers: decode,
    booleans: decode,
    preview: () => undefined,
  };
}

const model = { "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2" };

describe("counts are compared before anything is decoded:", () => {
  test.each<[string, Record<string, number>, number | undefined, string]>([
    [
      "more tokens than rows",
      { tokens: 55_000_000 },
      32_000,
      "the vocabulary has 55000000 tokens, but the embedding table (token_embd.weight) has 32000 rows",
    ],
    ["one more", { tokens: 32_001 }, 32_000, "32001 tokens, but"],
    ["no table, too many tokens", { tokens: 5_000_000 }, undefined, "expected at most 4194304"],
    [
      "more types than tokens",
      { tokens: 100, token_type: 101 },
      100,
      "tokenizer.ggml.token_type has 101 entries for 100 tokens",
    ],
    [
      "more scores than tokens",
      { tokens: 100, scores: 5000 },
      100,
      "tokenizer.ggml.scores has 5000",
    ],
    [
      "endless merges",
      { tokens: 100, merges: 1601 },
      100,
      "tokenizer.ggml.merges has 1601 entries",
    ],
  ])("%s", (_, counts, rows, message) => {
    const make = () => tokenizerFromMetadata(claims(counts, model), rows);
    expect(make).toThrow(ModelError);
    expect(make).toThrow(message);
  });

  test("a tokenizer.json with an id beyond the table", () => {
    const json = { model: { type: "BPE", vocab: { a: 0, b: 4_000_000 }, merges: [] } };
    expect(() => tokenizerFromJson(json, {}, undefined, 48)).toThrow(
      "the vocabulary has 4000001 tokens",
    );
  });

  test("a JSON file of millions of values", () => {
    const bytes = new Uint8Array(16_000_001).fill(",".charCodeAt(0));
    const facts = { format: "tokenizer", file: "tokenizer.json", field: "JSON" };
    expect(() => parseJsonObject(bytes, facts)).toThrow("more than 16000000 values");
  });

  test("a tokenizer.json that puts a token around texts that it has not", () => {
    const json = {
      model: { type: "BPE", vocab: { a: 0, b: 1 }, merges: [] },
      post_processor: { type: "BertProcessing", cls: ["c", 5], sep: ["a", 0] },
    };
    expect(() => tokenizerFromJson(json, {})).toThrow("post_processor 0 token is 5, but");
  });
});

describe("a model file", () => {
  let larger: Awaited<ReturnType<typeof tinyFile>>;

  beforeAll(async () => {
    larger = await tinyFile({ vocab: 200 }); // its tokenizer has 265
  });

  afterAll(() => larger.remove());

  test("with a larger tokenizer than table is refused when it is opened", async () => {
    const message = "the vocabulary has 265 tokens, but the embedding table";
    await expect(open(larger.path, { threads: 1 })).rejects.toThrow(message);
    const terminal = new FakeTerminal();
    expect(await main(["run", "-m", larger.path, "-p", "a"], terminal)).toBe(4);
    expect(terminal.stderr).toContain(message);
  });

  test.each(["bos", "eos", "unknown", "padding", "eom", "fim_pad"])(
    "with a %s token outside its vocabulary, too",
    async (role) => {
      const key = `tokenizer.ggml.${role}_token_id`;
      const file = await tinyFile({ more: [[key, { type: "u32", value: 265 }]] });
      await expect(open(file.path, { threads: 1 })).rejects.toThrow(
        /token is 265, but the vocabulary has ids 0 to 264/,
      );
      file.remove();
    },
  );
});

test("one entry of tokenizer.json with a large id is refused, not filled up to", () => {
  const vocab = { a: 0, b: 4_000_000 };
  const json = { model: { type: "BPE", vocab, merges: [] } };
  expect(() => tokenizerFromJson(json, undefined)).toThrow(/ids up to 4000000.*ids for 2 tokens/);
});
