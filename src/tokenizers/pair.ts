// Joins a query and a document to one text for a model that ranks, as llama.cpp does: by the file's own template, or with
// separators between their tokens.

import type { Metadata } from "../base/metadata.ts";
import { joined, type RenderedPrompt, trusted, words } from "../base/rendered-prompt.ts";
import type { PairFrame, SpecialTokens } from "./tokenizer.ts";

const KEY = "tokenizer.ggml.";

/** Pre-tokenizers of models that separate two texts, unless the file says otherwise. */
const separating: readonly string[] = ["jina-v1-en", "jina-v2-code", "roberta-bpe"];

/** `isWordPiece`: such a vocabulary separates texts with SEP, and ends them with EOS only if the file says so. */
export function pairFrame(
  metadata: Metadata,
  special: SpecialTokens,
  isWordPiece: boolean,
): PairFrame {
  const flag = (name: string): boolean | undefined => metadata.boolean(`${KEY}add_${name}_token`);
  const separates = isWordPiece || separating.includes(metadata.string(`${KEY}pre`) ?? "");
  const ends = flag("eos") ?? (special.addEos && !isWordPiece);
  const end = only(special.eos ?? special.sep, ends);
  return {
    template: metadata.string("tokenizer.chat_template.rerank"),
    before: only(special.bos, special.addBos),
    between: [...end, ...only(special.sep, flag("sep") ?? separates)],
    after: end,
  };
}

function only(id: number | undefined, isAdded: boolean): number[] {
  return isAdded && id !== undefined ? [id] : [];
}

/** The tokens of a pair. Special tokens in the two texts are plain text. */
export function pairTokens(
  frame: PairFrame,
  query: string,
  document: string,
  encode: (text: RenderedPrompt) => readonly number[],
): number[] {
  const { template, before, between, after } = frame;
  if (template !== undefined) {
    // In one pass: a query may contain "{document}".
    const parts = template
      .split(/(\{query\}|\{document\})/)
      .map((part, i) =>
        i % 2 === 0 ? trusted(part) : words(part === "{query}" ? query : document),
      );
    return [...encode(joined(...parts))];
  }
  return [before, encode(words(query)), between, encode(words(document)), after].flat();
}
