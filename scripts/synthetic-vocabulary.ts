// A SentencePiece-like vocabulary of any size for synthetic models: <unk>, <s>, </s>, the 256 bytes, single letters,
// then made-up words. Every text can be encoded. llama.cpp accepts it, also with architectures that normally use
// another kind of vocabulary.

import { UsageError } from "../src/base/errors.ts";
import type { GgufValue } from "../src/formats/gguf/writer.ts";
import { SPACE_MARK } from "../src/tokenizers/spm.ts";
import { TOKEN_TYPE } from "../src/tokenizers/vocabulary.ts";

const letters = [SPACE_MARK, ..."abcdefghijklmnopqrstuvwxyz"];
const consonants = [..."bdfghjklmnprstvz"];
const syllables = consonants.flatMap((consonant) => [..."aeiou"].map((vowel) => consonant + vowel));

export function syntheticVocabulary(size: number): [key: string, value: GgufValue][] {
  const { unknown, control, byte, normal } = TOKEN_TYPE;
  const tokens = ["<unk>", "<s>", "</s>"];
  const types: number[] = [unknown, control, control];
  for (let value = 0; value < 256; value++) {
    tokens.push(`<0x${value.toString(16).toUpperCase().padStart(2, "0")}>`);
    types.push(byte);
  }
  tokens.push(...letters);
  if (size < tokens.length) {
    throw new UsageError(`vocabulary: got ${size} tokens, expected at least ${tokens.length}`);
  }
  for (let word = 0; tokens.length < size; word++) tokens.push(SPACE_MARK + wordText(word));
  while (types.length < size) types.push(normal);
  return [
    ["tokenizer.ggml.model", { type: "string", value: "llama" }],
    ["tokenizer.ggml.tokens", { type: "array<string>", value: tokens }],
    ["tokenizer.ggml.scores", { type: "array<f32>", value: tokens.map((_, id) => -id) }],
    ["tokenizer.ggml.token_type", { type: "array<i32>", value: types }],
    ["tokenizer.ggml.bos_token_id", { type: "u32", value: 1 }],
    ["tokenizer.ggml.eos_token_id", { type: "u32", value: 2 }],
    ["tokenizer.ggml.unknown_token_id", { type: "u32", value: 0 }],
    ["tokenizer.ggml.add_bos_token", { type: "bool", value: true }],
  ];
}

/** Word number 0, 1, 2, ...: all of one syllable, then all of two, ... */
function wordText(number: number): string {
  let text = "";
  for (let rest = number; rest >= 0; rest = Math.floor(rest / syllables.length) - 1) {
    text = syllables[rest % syllables.length]! + text;
  }
  return text;
}
