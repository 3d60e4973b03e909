// A tokenizer from Hugging Face's tokenizer.json and tokenizer_config.json.
//
//   text -> split at added tokens -> normalizer -> split at normalised added tokens -> pre_tokenizer -> model -> ids
//
// A file in json/ reads each step; an unknown type is an error that names it. tokenizer_config.json gives the roles of
// special tokens, and its add_bos_token and add_eos_token override the post-processor.

import type { Metadata } from "../base/metadata.ts";
import {
  type RenderedPrompt,
  sliced,
  type Trusted,
  trusted,
  words,
} from "../base/rendered-prompt.ts";
import { makeDecoder } from "./json/decoder.ts";
import {
  asArray,
  asRecord,
  asString,
  asTokenId,
  booleanOr,
  failField,
  type JsonRecord,
} from "./json/fields.ts";
import { makeModel, type WordModel } from "./json/model.ts";
import { makeNormalizer, type Normalizer } from "./json/normalizer.ts";
import { type Frame, makePostProcessor } from "./json/post-processor.ts";
import { makePreTokenizer, type PreTokenizer, runStages } from "./json/pre-tokenizer.ts";
import { type AddedToken, SpecialSplitter } from "./split-special.ts";
import { type TextModel, TextTokenizer } from "./text-tokenizer.ts";
import type { SpecialTokens, Tokenizer } from "./tokenizer.ts";
import {
  checkIds,
  checkSpecialIds,
  checkVocabularySize,
  findEndOfGeneration,
  findEndOfTurn,
  findFill,
  parseByteToken,
  TOKEN_TYPE,
  Vocabulary,
} from "./vocabulary.ts";

/** Unused ids that any vocabulary may have. */
const mostGaps = 100_000;

/** An added token in tokenizer.json's form. */
interface JsonToken extends AddedToken {
  /** Hidden in decoded text. */
  special: boolean;
  /** Matched in the normalised text. */
  normalized: boolean;
}

/**
 * `metadata`: facts from the model's other files (ids that end a text), if there are any; `rows`: the size of its
 * embedding table, if there is one.
 */
export function tokenizerFromJson(
  tokenizerJson: unknown,
  tokenizerConfig: unknown,
  metadata?: Metadata,
  rows?: number,
): Tokenizer {
  const json = asRecord(tokenizerJson, "tokenizer.json");
  const config = tokenizerConfig ? asRecord(tokenizerConfig, "tokenizer_config.json") : {};
  const modelJson = asRecord(json.model, "model");
  const listed = readAddedTokens(json.added_tokens);
  const decoder = makeDecoder(json.decoder);
  const vocabulary = readVocabulary(modelJson, listed, decoder.byteFallback, rows);
  const special = readSpecial(config, vocabulary, metadata);
  const frame = applyConfig(makePostProcessor(json.post_processor), special, config);
  const framing = [...frame.prefix, ...frame.suffix].map((id, i) => [`post_processor ${i}`, id]);
  checkIds(vocabulary, Object.fromEntries(framing));
  special.addBos = special.bos !== undefined && frame.prefix.includes(special.bos);
  special.addEos = frame.suffix.some((id) => id === special.eos || id === special.sep);
  checkSpecialIds(vocabulary, special);
  const named = [special.eos, special.eot, ...(metadata?.numbers("lantern.eos_token_ids") ?? [])];
  const endOfGeneration = findEndOfGeneration(vocabulary, named);
  const added = listed.map((token) => ({ ...token, isWords: vocabulary.isWords(token.id) }));
  const preTokenizer = makePreTokenizer(json.pre_tokenizer);
  const model = makeModel(modelJson, vocabulary, preTokenizer.bytesLast);
  const normalizer = json.normalizer ? makeNormalizer(json.normalizer) : undefined;
  return new TextTokenizer({
    kind: model.kind,
    vocabulary,
    special,
    fill: findFill(vocabulary, (key) => metadata?.number(`tokenizer.ggml.${key}_token_id`)),
    endOfGeneration,
    model: new JsonTextModel(added, normalizer, preTokenizer, model),
    ...frame,
    // As llama.cpp joins texts: with the model's template, or with the end mark of a text between them.
    pair: {
      template: metadata?.string("tokenizer.chat_template.rerank"),
      before: frame.prefix,
      between: frame.suffix,
      after: frame.suffix,
    },
    bytesOf: decoder.bytesOf,
    leadingSpaces: decoder.leadingSpaces,
    keepsAllText: false, // normalizers and pre-tokenizers may drop some text
  });
}

/** The pipeline of the header comment. */
class JsonTextModel implements TextModel {
  readonly #raw: SpecialSplitter;
  readonly #normalized: SpecialSplitter;
  /** Whether normalised text may have marks in it, so that its trusted parts must be known. */
  readonly #marksAreLate: boolean;
  readonly #normalizer: Normalizer;
  readonly #preTokenizer: PreTokenizer;
  readonly #model: WordModel;

  constructor(
    added: readonly JsonToken[],
    normalizer: Normalizer | undefined,
    preTokenizer: PreTokenizer,
    model: WordModel,
  ) {
    const late = (token: JsonToken): boolean => normalizer !== undefined && token.normalized;
    this.#normalizer = normalizer ?? ((text) => text);
    // A token that is matched in normalised text is itself normalised, space marks included, as other readers of
    // tokenizer.json do.
    const normalize = (token: JsonToken): JsonToken => ({
      ...token,
      text: this.#normalizer(token.text),
    });
    this.#raw = new SpecialSplitter(added.filter((token) => !late(token)));
    this.#normalized = new SpecialSplitter(added.filter(late).map(normalize));
    this.#marksAreLate = added.some((token) => late(token) && !token.isWords);
    this.#preTokenizer = preTokenizer;
    this.#model = model;
  }

  encode(text: string, trusted: Trusted, ids: number[], check: () => void): void {
    const starts: number[] = [];
    let atStart = true;
    let texts = 0;
    const split = this.#raw.split(text, trusted, check, (at) => starts.push(at));
    for (const fragment of split) {
      if (typeof fragment === "number") ids.push(fragment);
      else {
        const from = starts[texts++]!;
        const said = sliced({ text, template: trusted }, from, from + fragment.length);
        const { text: normal, template } = this.#normalize(said, check);
        for (const part of this.#normalized.split(normal, template, check)) {
          if (typeof part === "number") ids.push(part);
          else this.#encodePlain(part, atStart, ids, check);
          atStart = false;
        }
      }
      atStart = false;
    }
  }

  /**
   * The normalised text and its trusted parts. Each stretch by itself must give the same text as among the others, but for a
   * prefix; from the first one that does not, no text is trusted.
   */
  #normalize(said: RenderedPrompt, check: () => void): RenderedPrompt {
    const { text, template } = said;
    const normal = this.#normalizer(text, check);
    if (!this.#marksAreLate || template.length === 0) return words(normal);
    if (template[0] === 0 && template[1] === text.length) return trusted(normal);
    const one = this.#normalizer("a");
    const prefix = one.endsWith("a") ? one.slice(0, -1) : "";
    const kept: number[] = [];
    let at = 0;
    for (const [i, from] of [0, ...template].entries()) {
      const stretch = this.#normalizer(text.slice(from, template[i] ?? text.length), check);
      const isNext = normal.startsWith(stretch, at);
      const own = isNext || !stretch.startsWith(prefix) ? stretch : stretch.slice(prefix.length);
      if (!isNext && !normal.startsWith(own, at)) break;
      if (i % 2 === 1 && own !== "") kept.push(at, at + own.length);
      at += own.length;
    }
    return { text: normal, template: kept };
  }

  #encodePlain(text: string, atStart: boolean, ids: number[], check: () => void): void {
    const encode = (word: string): void => {
      check();
      this.#model.encode(word, ids, check);
    };
    runStages(this.#preTokenizer.stages, text, atStart, encode, check);
  }
}

function readAddedTokens(value: unknown): JsonToken[] {
  return asArray(value ?? [], "added_tokens").map((entry, index) => {
    const field = `added_tokens[${index}]`;
    const token = asRecord(entry, field);
    const flag = (name: string, fallback: boolean): boolean =>
      booleanOr(token[name], fallback, `${field}.${name}`);
    const special = flag("special", false);
    return {
      id: asTokenId(token.id, `${field}.id`),
      text: asString(token.content, `${field}.content`),
      stripLeft: flag("lstrip", false),
      stripRight: flag("rstrip", false),
      singleWord: flag("single_word", false),
      isWords: !special, // its text decides as well, where the vocabulary is known
      special,
      normalized: flag("normalized", !special),
    };
  });
}

function readVocabulary(
  model: JsonRecord,
  added: readonly JsonToken[],
  byteFallback: boolean,
  rows: number | undefined,
): Vocabulary {
  const texts: string[] = [];
  const entries = Object.entries(asRecord(model.vocab, "model.vocab"));
  for (const [text, id] of entries) {
    texts[asTokenId(id, `model.vocab[${JSON.stringify(text)}]`)] = text;
  }
  for (const token of added) texts[token.id] = token.text;
  checkVocabularySize(texts.length, rows);
  // One entry with a large id must not cost as much as a million entries.
  if (texts.length > 2 * (entries.length + added.length) + mostGaps) {
    failField("model.vocab", `ids up to ${texts.length - 1}`, `ids for ${entries.length} tokens`);
  }
  const types = new Uint8Array(texts.length).fill(TOKEN_TYPE.normal);
  for (let id = 0; id < texts.length; id++) {
    if (texts[id] === undefined) {
      texts[id] = `[EMPTY_${id}]`; // an unused id: no text encodes to it, and it decodes to an empty text
      types[id] = TOKEN_TYPE.unused;
    } else if (byteFallback && parseByteToken(texts[id]!) !== undefined) {
      types[id] = TOKEN_TYPE.byte;
    }
  }
  for (const token of added) {
    types[token.id] = token.special ? TOKEN_TYPE.control : TOKEN_TYPE.userDefined;
  }
  return new Vocabulary({ texts, types });
}

function readSpecial(
  config: JsonRecord,
  vocabulary: Vocabulary,
  metadata: Metadata | undefined,
): SpecialTokens {
  const id = (role: string, key: string = role): number | undefined => {
    const value = config[`${role}_token`];
    // A string, or an object of an added token with its content.
    const text =
      typeof value === "object" && value !== null ? asRecord(value, role).content : value;
    const named = typeof text === "string" ? vocabulary.id(text) : undefined;
    return named ?? metadata?.number(`tokenizer.ggml.${key}_token_id`);
  };
  return {
    bos: id("bos") ?? id("cls"),
    eos: id("eos") ?? id("sep"),
    eot: id("eot") ?? findEndOfTurn(vocabulary),
    unk: id("unk", "unknown"),
    pad: id("pad", "padding"),
    sep: id("sep", "seperator"),
    addBos: false,
    addEos: false,
  };
}

/** tokenizer_config.json's BOS and EOS settings override the post-processor. */
function applyConfig(frame: Frame, special: SpecialTokens, config: JsonRecord): Frame {
  const wanted = (name: string): boolean | undefined => {
    const value = config[name];
    return value === undefined || value === null
      ? undefined
      : booleanOr(value, false, `tokenizer_config.json: ${name}`);
  };
  const adjust = (
    ids: readonly number[],
    id: number | undefined,
    want: boolean | undefined,
    add: (id: number) => number[],
  ): readonly number[] => {
    if (id === undefined || want === undefined || want === ids.includes(id)) return ids;
    return want ? add(id) : ids.filter((other) => other !== id);
  };
  const { prefix, suffix } = frame;
  return {
    prefix: adjust(prefix, special.bos, wanted("add_bos_token"), (id) => [id, ...prefix]),
    suffix: adjust(suffix, special.eos, wanted("add_eos_token"), (id) => [...suffix, id]),
  };
}
