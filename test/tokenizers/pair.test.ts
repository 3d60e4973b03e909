// A query and a document as the tokens of one text: llama.cpp's rules for what is put around them, from the keys of a file.

import { expect, test } from "vitest";
import { joined, type RenderedPrompt, trusted, words } from "../../src/base/rendered-prompt.ts";
import { pairFrame, pairTokens } from "../../src/tokenizers/pair.ts";
import type { SpecialTokens } from "../../src/tokenizers/tokenizer.ts";
import { plainMetadata } from "../support/tiny-engine.ts";

const special: SpecialTokens = {
  bos: 1,
  eos: 2,
  eot: undefined,
  unk: 0,
  pad: undefined,
  sep: 3,
  addBos: true,
  addEos: true,
};
/** Its letters' codes; "<x>" is one token where special tokens are recognised. */
const encode = ({ text, template }: RenderedPrompt): number[] => {
  const ids: number[] = [];
  for (let at = 0; at < text.length; at++) {
    const isMark =
      text.startsWith("<x>", at) &&
      template.some((from, i) => i % 2 === 0 && from <= at && at + 3 <= template[i + 1]!);
    ids.push(isMark ? 0 : text.charCodeAt(at));
    if (isMark) at += 2;
  }
  return ids;
};
const [q, d] = ["q".charCodeAt(0), "d".charCodeAt(0)];

test.each([
  ["EOS after both", {}, special, false, [1, q, 2, d, 2]],
  ["no EOS", { "tokenizer.ggml.add_eos_token": false }, special, false, [1, q, d]],
  [
    "EOS and SEP between",
    { "tokenizer.ggml.add_sep_token": true },
    special,
    false,
    [1, q, 2, 3, d, 2],
  ],
  [
    "these models have SEP",
    { "tokenizer.ggml.pre": "jina-v1-en" },
    special,
    false,
    [1, q, 2, 3, d, 2],
  ],
  ["WordPiece: SEP between, nothing at the end", {}, special, true, [1, q, 3, d]],
  [
    "WordPiece with EOS: SEP where there is none",
    { "tokenizer.ggml.add_eos_token": true },
    { ...special, eos: undefined },
    true,
    [1, q, 3, 3, d, 3],
  ],
  ["no BOS", {}, { ...special, addBos: false }, false, [q, 2, d, 2]],
])("%s", (_, keys, tokens, isWordPiece, expected) => {
  const frame = pairFrame(plainMetadata(keys), tokens, isWordPiece);
  expect(pairTokens(frame, "q", "d", encode)).toEqual(expected);
});

test("special tokens in the texts are plain text", () => {
  const frame = pairFrame(plainMetadata({}), special, false);
  expect(pairTokens(frame, "<x>", "", encode)).toEqual([1, ...encode(words("<x>")), 2, 2]);
});

test("a template takes the place of it all, and what a query contains is no hole and no special token", () => {
  const template = "<x>{query}|{document}|{query}";
  const metadata = plainMetadata({ "tokenizer.chat_template.rerank": template });
  const found = pairTokens(pairFrame(metadata, special, false), "a{document}", "<x>", encode);
  const said = [trusted("<x>"), words("a{document}|<x>|a{document}")];
  expect(found).toEqual(encode(joined(...said)));
});
