// The tokenizer's lists in GGUF's form, from each form of tokenizer that a model may have. One table entry per form.
//
// Two GGUF kinds matter here: "gpt2" (byte-level BPE: merges, and the name of a pre-tokenizer) and "llama"
// (SentencePiece: scores). A tokenizer.json of the Llama 2 family has merges, but is written as "llama": a token's
// score is the rank of the merge that makes it, because both algorithms merge the best pair first.

import { ModelError, UsageError } from "../../base/errors.ts";
import type { TokenizerData } from "../../formats/model-file.ts";
import { llama2cVocabulary } from "../../tokenizers/from-llama2c.ts";
import { asArray, asRecord, asString, type JsonRecord } from "../../tokenizers/json/fields.ts";
import { parseByteToken, TOKEN_TYPE } from "../../tokenizers/vocabulary.ts";
import { bool, type Entries, f32s, i32s, text, texts } from "./entries.ts";
import { findPreTokenizerName, piecesOf } from "./pre-tokenizer.ts";

export const KEY = "tokenizer.ggml.";

export interface VocabularyOptions {
  /** Rows of the embedding table: GGUF needs a token for each. */
  size: number;
  /** tokenizer.ggml.pre, if the user gives it. */
  pre: string | undefined;
}

type Maker<K extends TokenizerData["kind"]> = (
  data: Extract<TokenizerData, { kind: K }>,
  options: VocabularyOptions,
) => Entries;

const makers: { readonly [K in TokenizerData["kind"]]: Maker<K> } = {
  gguf: () => {
    throw new UsageError(
      'convert: the model is a GGUF file already. "lantern quantize" changes its types',
    );
  },
  json: ({ tokenizer }, options) => jsonEntries(asRecord(tokenizer, "tokenizer.json"), options),
  llama2c: ({ bytes }, { size }) => {
    const vocabulary = llama2cVocabulary(bytes, size);
    return new Map([
      [`${KEY}model`, text("llama")],
      [`${KEY}pre`, text("default")],
      [`${KEY}tokens`, texts(vocabulary.texts)],
      [`${KEY}scores`, f32s([...vocabulary.scores])],
      [`${KEY}token_type`, i32s([...vocabulary.types])],
    ]);
  },
};

export function vocabularyEntries(data: TokenizerData, options: VocabularyOptions): Entries {
  const make = makers[data.kind] as Maker<TokenizerData["kind"]>;
  return make(data, options);
}

function jsonEntries(json: JsonRecord, options: VocabularyOptions): Entries {
  const model = asRecord(json.model, "model");
  if (model.type !== undefined && model.type !== "BPE") {
    throw new ModelError(
      `convert: tokenizer.json has a model of type ${String(model.type)}, expected BPE, as GGUF's "gpt2" and "llama" are`,
    );
  }
  const byteLevel = [...piecesOf(json.pre_tokenizer), ...piecesOf(json.decoder)];
  if (byteLevel.some(({ type }) => type === "ByteLevel")) return byteLevelEntries(json, options);
  if (model.byte_fallback === true) return sentencePieceEntries(json, options);
  throw new ModelError(
    "convert: tokenizer.json is neither byte-level BPE (ByteLevel) nor of the Llama 2 family (byte_fallback). GGUF can store only these two",
  );
}

function byteLevelEntries(json: JsonRecord, options: VocabularyOptions): Entries {
  const tokens = readTokens(json, options.size);
  const merges = readMerges(json).map(([left, right]) => `${left} ${right}`);
  return new Map([
    [`${KEY}model`, text("gpt2")],
    [`${KEY}pre`, text(options.pre ?? findPreTokenizerName(json))],
    [`${KEY}tokens`, texts(tokens.map((token) => token.text))],
    [`${KEY}token_type`, i32s(tokens.map((token) => token.type))],
    [`${KEY}merges`, texts(merges)],
  ]);
}

/** Score of tokens that no merge makes: single characters. Any merge comes before them. */
const unmergedScore = -1e6;

function sentencePieceEntries(json: JsonRecord, options: VocabularyOptions): Entries {
  const tokens = readTokens(json, options.size);
  const ranks = new Map<string, number>();
  readMerges(json).forEach(([left, right], rank) => {
    const merged = left + right;
    if (!ranks.has(merged)) ranks.set(merged, rank);
  });
  const unknown = asRecord(json.model, "model").unk_token;
  const isText = new Set<number>([TOKEN_TYPE.normal, TOKEN_TYPE.userDefined]);
  const score = (token: Token): number => {
    const rank = ranks.get(token.text);
    if (rank !== undefined) return -rank;
    return isText.has(token.type) ? unmergedScore : 0;
  };
  for (const token of tokens) {
    if (token.text === unknown) token.type = TOKEN_TYPE.unknown;
    else if (parseByteToken(token.text) !== undefined) token.type = TOKEN_TYPE.byte;
  }
  return new Map([
    [`${KEY}model`, text("llama")],
    [`${KEY}pre`, text("default")],
    [`${KEY}tokens`, texts(tokens.map((token) => token.text))],
    [`${KEY}scores`, f32s(tokens.map(score))],
    [`${KEY}token_type`, i32s(tokens.map((token) => token.type))],
    [`${KEY}add_space_prefix`, bool(prependsSpace(json))],
  ]);
}

/** Whether "▁" is added before the text: by a Prepend in the normalizer, or by a Metaspace with its default. */
function prependsSpace(json: JsonRecord): boolean {
  const prepends = ({ type, prepend_scheme, add_prefix_space }: JsonRecord): boolean =>
    type === "Prepend" ||
    (type === "Metaspace" &&
      (prepend_scheme === undefined ? add_prefix_space !== false : prepend_scheme !== "never"));
  return [...piecesOf(json.normalizer), ...piecesOf(json.pre_tokenizer)].some(prepends);
}

interface Token {
  text: string;
  type: number;
}

/** One token for every row of the embedding table; unused ids are padding, under llama.cpp's name for it. */
function readTokens(json: JsonRecord, size: number): Token[] {
  const tokens: (Token | undefined)[] = [];
  const set = (id: number, token: Token): void => {
    if (id < size) tokens[id] = token;
    else {
      throw new ModelError(
        `convert: token ${JSON.stringify(token.text)} has the id ${id}, but the embedding table has ${size} rows. The tokenizer belongs to another model`,
      );
    }
  };
  const model = asRecord(json.model, "model");
  for (const [word, id] of Object.entries(asRecord(model.vocab, "model.vocab"))) {
    set(Number(id), { text: word, type: TOKEN_TYPE.normal });
  }
  for (const entry of asArray(json.added_tokens ?? [], "added_tokens")) {
    const { id, content, special } = asRecord(entry, "added_tokens");
    const word = asString(content, "added_tokens.content");
    const control = special === true || looksSpecial(word);
    // A user-defined token is matched in the raw text, where a space is a space.
    const type = control ? TOKEN_TYPE.control : TOKEN_TYPE.userDefined;
    set(Number(id), { text: control ? word : word.replaceAll("▁", " "), type });
  }
  return Array.from(
    { length: size },
    (_, id) => tokens[id] ?? { text: `[PAD${id}]`, type: TOKEN_TYPE.unused },
  );
}

/** Control tokens that some files do not mark as such. llama.cpp uses the same rules. */
function looksSpecial(word: string): boolean {
  return (
    /^(?:<\|.*\|>|<\uff5c.*\uff5c>|<unused.*>)$/su.test(word) ||
    ["<pad>", "<mask>", "<2mass>", "[@BOS@]"].includes(word)
  );
}

/** Either "a b" or ["a", "b"]. */
function readMerges(json: JsonRecord): [left: string, right: string][] {
  const merges = asArray(asRecord(json.model, "model").merges, "model.merges");
  return merges.map((entry) => {
    const [left, right] = typeof entry === "string" ? entry.split(" ") : (entry as string[]);
    return [left!, right!];
  });
}
