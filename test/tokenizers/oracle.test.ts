// tokenizer.json against Hugging Face's own implementation, on real files (development dependencies, ../shared) and on small
// ones made here that use the pieces which the real ones do not: same ids, same text back.

import { readFileSync } from "node:fs";
import { Tokenizer as Oracle } from "@huggingface/tokenizers";
import { describe, expect, it } from "vitest";
import { tokenizerFromJson } from "../../src/tokenizers/from-json.ts";
import { tokenizerFromMetadata } from "../../src/tokenizers/from-metadata.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";
import { describeShared, hasShared, sharedPath } from "../support/shared.ts";
import { missingTokenizer, tokenizerFolder } from "../support/tokenizer-files.ts";
import { metadataOf, readJson } from "./support.ts";
import { sampleTexts } from "./texts.ts";

type Json = Record<string, unknown> & { model: Record<string, unknown> };

function makeOracle(json: Json, config: object): Oracle {
  return new Oracle(structuredClone(json) as never, config as never);
}

function expectSameIds(tokenizer: Tokenizer, oracle: Oracle, texts: readonly string[]): void {
  for (const text of texts) {
    const expected = oracle.encode(text.toWellFormed(), { add_special_tokens: false }).ids;
    const ids = tokenizer.encode(text, { addSpecial: false });
    expect(ids, JSON.stringify(text)).toEqual(expected);
  }
}

function wikitext(lines: number): string[] {
  if (!hasShared("corpora")) return [];
  const text = readFileSync(sharedPath("corpora/wikitext-2-raw-test.txt"), "utf8");
  return text.split("\n").filter(Boolean).slice(0, lines);
}

function checkFolder(folder: string): void {
  const json = readJson(`${folder}/tokenizer.json`) as Json;
  const config = readJson(`${folder}/tokenizer_config.json`) as object;
  const tokenizer = tokenizerFromJson(json, config);
  const oracle = makeOracle(json, config);
  const texts = [...sampleTexts(400), ...wikitext(200)];
  expectSameIds(tokenizer, oracle, texts);
  for (const text of texts) {
    const ids = tokenizer.encode(text, { addSpecial: false });
    if (ids.length === 0) continue;
    const decoded = tokenizer.decode(ids, { special: true });
    const options = { skip_special_tokens: false, clean_up_tokenization_spaces: false };
    expect(decoded).toBe(oracle.decode(ids, options));
  }
}

describe("real tokenizer.json files", () => {
  for (const name of ["gpt2", "llama3", "qwen2_5"] as const) {
    const missing = missingTokenizer(name);
    it.skipIf(missing !== "")(name + missing, () => checkFolder(tokenizerFolder(name)!));
  }

  it("byte-level text comes back byte by byte", () => {
    const folder = tokenizerFolder("llama3") ?? tokenizerFolder("gpt2")!;
    const json = readJson(`${folder}/tokenizer.json`);
    const tokenizer = tokenizerFromJson(json, readJson(`${folder}/tokenizer_config.json`));
    for (const text of sampleTexts(400)) {
      const decoded = tokenizer.decode(tokenizer.encode(text), { special: true });
      expect(decoded).toBe(text.toWellFormed());
    }
  });
});

describeShared("tokenizer.json of ../shared/models", "models", () => {
  it.each(["story", "minimind2-small"])("%s", (name) => {
    checkFolder(sharedPath(`models/${name}`));
  });
});

// The pre-tokenizers of GGUF files, each as Hugging Face's pieces would say it, over GPT-2's vocabulary: what cuts
// differently gets different ids.
const split = (regex: string): object => ({
  type: "Split",
  pattern: { Regex: regex },
  behavior: "Isolated",
  invert: false,
});
const byteLevel = (use_regex: boolean): object => ({
  type: "ByteLevel",
  add_prefix_space: false,
  trim_offsets: true,
  use_regex,
});
// "Digits" would say it, but the oracle's knows ASCII digits only.
const digits = split("\\p{N}");
const gpt2Regex =
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const llamaRegex = (numbers: string): string =>
  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${numbers}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
const tekkenRegex =
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const asPieces: [name: string, pieces: object[], ignoreMerges?: boolean][] = [
  ["gpt-2", [byteLevel(true)]],
  ["mpt", [byteLevel(true)]],
  ["llama-bpe", [split(llamaRegex("\\p{N}{1,3}")), byteLevel(false)], true],
  ["smaug-bpe", [split(llamaRegex("\\p{N}{1,3}")), byteLevel(false)]],
  ["qwen2", [split(llamaRegex("\\p{N}")), byteLevel(false)]],
  ["starcoder", [digits, byteLevel(true)]],
  ["refact", [digits, byteLevel(true)]],
  ["command-r", [digits, byteLevel(true)]],
  ["smollm", [digits, byteLevel(true)]],
  [
    "falcon",
    [split("[\\p{P}$+<=>^~|`]+"), split(gpt2Regex), split("[0-9][0-9][0-9]"), byteLevel(false)],
  ],
  [
    "deepseek-coder",
    [
      split("[\r\n]"),
      split("\\s?\\p{L}+"),
      split("\\s?\\p{P}+"),
      split("[一-龥ࠀ-一가-퟿]+"),
      digits,
      byteLevel(false),
    ],
  ],
  ["tekken", [split(tekkenRegex), byteLevel(false)], true],
];

describe("pre-tokenizers by their GGUF names", () => {
  const gpt2 = readJson(`${tokenizerFolder("gpt2")!}/tokenizer.json`) as Json;
  const vocab = gpt2.model.vocab as Record<string, number>;
  const tokens: string[] = [];
  for (const [text, id] of Object.entries(vocab)) tokens[id] = text;
  const oracles = new Map<string, Oracle>();

  it.each(asPieces)("%s", (name, pieces, ignoreMerges = false) => {
    const json: Json = {
      ...gpt2,
      pre_tokenizer: { type: "Sequence", pretokenizers: pieces },
      model: { ...gpt2.model, ignore_merges: ignoreMerges },
    };
    const tokenizer = tokenizerFromMetadata(
      metadataOf({
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": name,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": gpt2.model.merges as string[],
        "tokenizer.ggml.token_type": tokens.map((text) => (text === "<|endoftext|>" ? 3 : 1)),
        "tokenizer.ggml.add_bos_token": false,
      }),
    );
    const key = JSON.stringify([pieces, ignoreMerges]); // several names mean the same, and an oracle is slow to make
    const oracle = oracles.get(key) ?? makeOracle(json, {});
    oracles.set(key, oracle);
    expectSameIds(tokenizer, oracle, sampleTexts(200));
  });
});

describe("pieces that the real files do not use", () => {
  const added = (id: number, content: string, flags: object = {}): object => ({
    id,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
    ...flags,
  });
  const wordPiece: Json = {
    added_tokens: [added(0, "[PAD]"), added(1, "[UNK]"), added(2, "[CLS]"), added(3, "[SEP]")],
    normalizer: {
      type: "BertNormalizer",
      clean_text: true,
      handle_chinese_chars: true,
      strip_accents: null,
      lowercase: true,
    },
    pre_tokenizer: { type: "BertPreTokenizer" },
    post_processor: {
      type: "TemplateProcessing",
      single: [
        { SpecialToken: { id: "[CLS]", type_id: 0 } },
        { Sequence: { id: "A", type_id: 0 } },
        { SpecialToken: { id: "[SEP]", type_id: 0 } },
      ],
      pair: [],
      special_tokens: {
        "[CLS]": { id: "[CLS]", ids: [2], tokens: ["[CLS]"] },
        "[SEP]": { id: "[SEP]", ids: [3], tokens: ["[SEP]"] },
      },
    },
    decoder: { type: "WordPiece", prefix: "##", cleanup: true },
    model: {
      type: "WordPiece",
      unk_token: "[UNK]",
      continuing_subword_prefix: "##",
      max_input_chars_per_word: 100,
      vocab: Object.fromEntries(
        [
          ...["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "world", "the", "year", "##s", "##ing"],
          ...[..."abcdefghijklmnopqrstuvwxyz0123456789"].flatMap((char) => [char, `##${char}`]),
          ...["naive", "cafe", "un", "##able", "我", "想", ",", ".", "!", "'", "(", ")", "-"],
        ].map((text, id) => [text, id]),
      ),
    },
  };

  it("WordPiece with BERT's normalisation", () => {
    const tokenizer = tokenizerFromJson(wordPiece, { cls_token: "[CLS]", sep_token: "[SEP]" });
    // The oracle keeps unassigned characters and takes Chinese ones beyond U+FFFF for letters; the original does not.
    const comparable = (text: string): boolean => !/[\p{Cn}\u{20000}-\u{2fa1f}]/u.test(text);
    const samples = sampleTexts(400).filter(comparable);
    expect(samples.length).toBeGreaterThan(200);
    expectSameIds(tokenizer, makeOracle(wordPiece, {}), samples);
    expect(tokenizer.kind).toBe("wordpiece");
    const text = "Hello, World! Naïve (café)";
    const ids = tokenizer.encode(text);
    expect(ids).toEqual(makeOracle(wordPiece, {}).encode(text).ids);
    expect(tokenizer.decode(ids)).toBe("hello, world! naive ( cafe )");
  });

  // A Llama-2-style vocabulary: characters, some merges, all bytes.
  const merges = ["t h", "th e", "▁ the", "▁ a", "a n", "an d", "▁ and", "l l", "▁ ▁"];
  const texts = [
    ...["<unk>", "<s>", "</s>"],
    ...Array.from(
      { length: 256 },
      (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`,
    ),
    ...["▁", ..."abcdefghijklmnopqrstuvwxyz.,'"],
    ...merges.map((merge) => merge.replace(" ", "")),
    "<tool>",
  ];
  const llama2: Json = {
    added_tokens: [
      added(0, "<unk>"),
      added(1, "<s>"),
      added(2, "</s>"),
      added(texts.length - 1, "<tool>", { special: false, lstrip: true, rstrip: true }),
    ],
    normalizer: {
      type: "Sequence",
      normalizers: [
        { type: "Prepend", prepend: "▁" },
        { type: "Replace", pattern: { String: " " }, content: "▁" },
      ],
    },
    pre_tokenizer: null,
    post_processor: null,
    decoder: {
      type: "Sequence",
      decoders: [
        { type: "Replace", pattern: { String: "▁" }, content: " " },
        { type: "ByteFallback" },
        { type: "Fuse" },
        { type: "Strip", content: " ", start: 1, stop: 0 },
      ],
    },
    model: {
      type: "BPE",
      unk_token: "<unk>",
      fuse_unk: true,
      byte_fallback: true,
      vocab: Object.fromEntries(texts.map((text, id) => [text, id])),
      merges,
    },
  };

  it("BPE with byte fallback and a prepended space mark", () => {
    const tokenizer = tokenizerFromJson(llama2, {});
    const samples = [...sampleTexts(400), "a  <tool>  and <tool>the", "x</s> <s>y"];
    expectSameIds(tokenizer, makeOracle(llama2, {}), samples);
    for (const text of samples.filter((sample) => !sample.includes("<"))) {
      const ids = tokenizer.encode(text, { addSpecial: false });
      expect(tokenizer.decode(ids)).toBe(text.toWellFormed());
    }
  });

  it.each(["always", "first", "never"])("Metaspace, prepend_scheme %s", (prepend_scheme) => {
    // The oracle does not split; pre-tokenizer.test.ts does.
    const metaspace = { type: "Metaspace", replacement: "▁", prepend_scheme, split: false };
    const json = { ...llama2, normalizer: null, pre_tokenizer: metaspace, decoder: metaspace };
    const samples = [...sampleTexts(100), "the <s> and the", "<s>the</s>and"];
    expectSameIds(tokenizerFromJson(json, {}), makeOracle(json, {}), samples);
  });
});
