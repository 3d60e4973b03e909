// The tokenizer of a converted model: its lists (vocabulary.ts), special tokens, chat templates, and a check that a reader of the
// new file gets the same tokenizer. If not, the conversion reports it.

import type { ModelFile } from "../../formats/model-file.ts";
import { tokenizerFromMetadata } from "../../tokenizers/from-metadata.ts";
import type { SpecialTokens, Tokenizer } from "../../tokenizers/tokenizer.ts";
import { asMetadata, bool, type Entries, text, u32 } from "./entries.ts";
import { probes } from "./pre-tokenizer.ts";
import { KEY, type VocabularyOptions, vocabularyEntries } from "./vocabulary.ts";

const specialKeys: readonly [role: keyof SpecialTokens, key: string][] = [
  ["bos", "bos_token_id"],
  ["eos", "eos_token_id"],
  ["unk", "unknown_token_id"],
  ["pad", "padding_token_id"],
];

/** Keys for ids that end an answer besides EOS and are not recognised by their texts. */
const endKeys: readonly string[] = ["eot_token_id", "eom_token_id"];

export interface TokenizerEntries {
  entries: Entries;
  notes: string[];
}

/** `own`: Lantern's tokenizer for the original file. */
export function tokenizerEntries(
  file: ModelFile,
  own: Tokenizer,
  options: VocabularyOptions,
): TokenizerEntries {
  const entries = vocabularyEntries(file.tokenizer, options);
  for (const [role, key] of specialKeys) {
    const id = own.special[role];
    if (typeof id === "number") entries.set(KEY + key, u32(id));
  }
  entries.set(`${KEY}add_bos_token`, bool(own.special.addBos));
  entries.set(`${KEY}add_eos_token`, bool(own.special.addEos));
  for (const key of file.metadata.keys()) {
    if (/^tokenizer\.chat_template(?:\.|$)/.test(key)) {
      entries.set(key, text(file.metadata.string(key)!));
    }
  }
  const written = tokenizerFromMetadata(asMetadata(entries));
  return { entries, notes: [...addEnds(entries, own, written), ...compare(own, written)] };
}

/** Adds keys for ids that end an answer and would not be recognised by text, as far as there are keys. */
function addEnds(entries: Entries, own: Tokenizer, written: Tokenizer): string[] {
  const missing: number[] = [];
  for (let id = 0; id < own.vocabSize; id++) {
    if (own.isEndOfGeneration(id) && !written.isEndOfGeneration(id)) missing.push(id);
  }
  endKeys.forEach((key, i) => {
    if (missing[i] !== undefined) entries.set(KEY + key, u32(missing[i]));
  });
  return missing
    .slice(endKeys.length)
    .map(
      (id) =>
        `token ${id} (${JSON.stringify(own.tokenText(id))}) ends an answer, but GGUF has no key left to say so`,
    );
}

/** Compares both on the same texts and describes the differences. */
function compare(own: Tokenizer, written: Tokenizer): string[] {
  const unknown = own.special.unk;
  const single = (ids: number[]): number[] =>
    ids.filter((id, at) => id !== unknown || ids[at - 1] !== unknown);
  const differ = (by: (ids: number[]) => number[]): string[] =>
    probes.filter((probe) => {
      const [a, b] = [own, written].map((tokenizer) => by(tokenizer.encode(probe)).join(" "));
      return a !== b;
    });
  const different = differ(single);
  if (different.length > 0) {
    return [
      `the tokenizer of the GGUF file cuts ${different.length} of ${probes.length} test texts into other tokens than the original, which GGUF cannot express exactly; the first of them: ${JSON.stringify(different[0])}`,
    ];
  }
  if (differ((ids) => ids).length === 0) return [];
  return [
    "characters in a row that the vocabulary does not have become an unknown token each, in the original one for all of them",
  ];
}
