// llama.cpp's own tokenizer vectors and golden prompts: the ids must be the same, for GGUF vocabularies of every kind.
// Its test (test-tokenizer-0) neither adds special tokens nor parses them; so do we here.

import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { tokenizerFromJson } from "../../src/tokenizers/from-json.ts";
import { tokenizerFromLlama2c } from "../../src/tokenizers/from-llama2c.ts";
import { tokenizerFromMetadata } from "../../src/tokenizers/from-metadata.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";
import { describeShared, hasShared, sharedPath } from "../support/shared.ts";
import {
  missingTokenizer,
  type TokenizerName,
  tokenizerFolder,
} from "../support/tokenizer-files.ts";
import { ggufMetadata, readJson } from "./support.ts";
import { sampleTexts } from "./texts.ts";

async function ggufTokenizer(relative: string): Promise<Tokenizer> {
  return tokenizerFromMetadata(await ggufMetadata(sharedPath(relative)));
}

function folderTokenizer(relative: string): Tokenizer {
  return tokenizerFromJson(
    readJson(sharedPath(`${relative}/tokenizer.json`)),
    readJson(sharedPath(`${relative}/tokenizer_config.json`)),
  );
}

const vocabularies = hasShared("vocab")
  ? readdirSync(sharedPath("vocab")).filter((file) => file.endsWith(".gguf"))
  : [];

describeShared("llama.cpp's vectors", "vocab", () => {
  it("covers every vocabulary file", () => {
    expect(vocabularies.length).toBeGreaterThanOrEqual(8);
  });

  it.each(vocabularies)("%s", async (file) => {
    const tokenizer = await ggufTokenizer(`vocab/${file}`);
    const read = (end: string): string => readFileSync(sharedPath(`vocab/${file}${end}`), "utf8");
    // A separator (a newline) after the last text (line) starts no further one.
    const texts = read(".inp")
      .replace(/\n__ggml_vocab_test__\n$/, "")
      .split("\n__ggml_vocab_test__\n");
    const lines = read(".out").replace(/\n$/, "").split("\n");
    expect(texts.length).toBe(lines.length);
    texts.forEach((text, index) => {
      const expected = (lines[index]!.match(/\d+/g) ?? []).map(Number);
      const ids = tokenizer.encode(text, { addSpecial: false, parseSpecial: false });
      expect(ids, JSON.stringify(text)).toEqual(expected);
      if (tokenizer.kind !== "wordpiece") expect(tokenizer.decode(ids)).toBe(text);
    });
  });
});

interface Golden {
  cases: { prompt: string; tokens: number[]; greedy: number[]; text: string }[];
}

/** Which tokenizer each golden file belongs to. TinyLlama's file is not at hand; its vocabulary is Llama's. */
const goldenTokenizers: [
  file: string,
  where: string,
  make: () => Promise<Tokenizer> | Tokenizer,
][] = [
  ...["minimind2-small-Q6_K", "minimind2-small-Q8_0"].map(
    (name) =>
      [name, "GGUF", () => ggufTokenizer(`models/minimind2-small/${name}.gguf`)] as [
        string,
        string,
        () => Promise<Tokenizer>,
      ],
  ),
  ["minimind2-small-Q8_0", "folder", () => folderTokenizer("models/minimind2-small")],
  ["stories15M-F32", "GGUF", () => ggufTokenizer("models/stories15M/stories15M-Q8_0.gguf")],
  ["stories15M-Q4_0", "GGUF", () => ggufTokenizer("models/stories15M/stories15M-Q4_0.gguf")],
  ["stories260K-F32", "GGUF", () => ggufTokenizer("models/stories260K/stories260K-F32.gguf")],
  [
    "stories260K-F32",
    "llama2.c",
    () => tokenizerFromLlama2c(readFileSync(sharedPath("models/stories260K/tok512.bin")), 512),
  ],
  ["story-656K-F32", "GGUF", () => ggufTokenizer("models/story/story-656K-F32.gguf")],
  ["story-656K-F32", "folder", () => folderTokenizer("models/story")],
  ["tinyllama-IQ2_XXS", "GGUF", () => ggufTokenizer("vocab/ggml-vocab-llama-spm.gguf")],
];

describeShared("golden prompts", "golden", () => {
  it.each(goldenTokenizers)("%s from %s", async (file, _where, make) => {
    const tokenizer = await make();
    const golden = readJson(sharedPath(`golden/${file}.json`)) as Golden;
    expect(golden.cases.length).toBeGreaterThan(0);
    for (const { prompt, tokens, greedy, text } of golden.cases) {
      expect(tokenizer.encode(prompt)).toEqual(tokens);
      expect(tokenizer.decode(greedy, { special: true, continues: true })).toBe(text);
    }
  });
});

describe.skipIf(!hasShared("vocab"))(
  `GGUF and tokenizer.json of the same model${hasShared("vocab") ? "" : " [skipped: ../shared/vocab is not on this machine]"}`,
  () => {
    const pairs: [vocabulary: string, name: TokenizerName][] = [
      ["llama-bpe", "llama3"],
      ["gpt-2", "gpt2"],
      // Qwen's tokenizer.json normalises to NFC, which GGUF files and llama.cpp leave out: the texts are NFC here.
      ["qwen2", "qwen2_5"],
    ];
    it.for(pairs)("%s", async ([vocabulary, name], { skip }) => {
      const folder = tokenizerFolder(name);
      if (folder === undefined) return skip(missingTokenizer(name));
      const fromGguf = await ggufTokenizer(`vocab/ggml-vocab-${vocabulary}.gguf`);
      const fromJson = tokenizerFromJson(
        readJson(`${folder}/tokenizer.json`),
        readJson(`${folder}/tokenizer_config.json`),
      );
      for (const sample of sampleTexts()) {
        const text = sample.normalize("NFC");
        const options = { addSpecial: false, parseSpecial: false };
        expect(fromGguf.encode(text, options), JSON.stringify(text)).toEqual(
          fromJson.encode(text, options),
        );
      }
    });
  },
);
