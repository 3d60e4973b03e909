// The vocabulary: text, type and score of every token, and the lookup of an id by text.
//
// It has no algorithm; those are in spm.ts, bpe.ts and wordpiece.ts. The numbers of the token types are GGUF's
// (tokenizer.ggml.token_type), also for tokenizer.json and tokenizer.bin.

import { ModelError } from "../base/errors.ts";
import { TextIndex } from "./text-index.ts";
import type { FillTokens, SpecialTokens } from "./tokenizer.ts";

export const TOKEN_TYPE = {
  undefined: 0,
  normal: 1,
  unknown: 2,
  control: 3,
  userDefined: 4,
  unused: 5,
  byte: 6,
} as const;

/** Real tokens have up to some hundred characters. */
const LONGEST_TEXT = 65_536;

export interface VocabularyData {
  texts: string[];
  /** One of TOKEN_TYPE per token; absent: all normal. */
  types?: Uint8Array | undefined;
  /** A higher score merges earlier (spm); absent: all zero. */
  scores?: Float32Array | undefined;
}

export class Vocabulary {
  readonly texts: readonly string[];
  readonly types: Uint8Array;
  readonly scores: Float32Array;
  readonly #ids: TextIndex;

  constructor(data: VocabularyData) {
    const size = data.texts.length;
    if (size === 0) {
      throw new ModelError("tokenizer: the vocabulary is empty, expected at least one token");
    }
    this.texts = data.texts;
    this.types = data.types ?? new Uint8Array(size).fill(TOKEN_TYPE.normal);
    this.scores = data.scores ?? new Float32Array(size);
    for (let id = 0; id < size; id++) {
      const text = data.texts[id]!;
      if (text.length > LONGEST_TEXT) {
        throw new ModelError(
          `tokenizer: token ${id} has ${text.length} characters, expected at most ${LONGEST_TEXT}`,
        );
      }
    }
    this.#ids = new TextIndex(data.texts);
  }

  get size(): number {
    return this.texts.length;
  }

  id(text: string): number | undefined {
    return this.#ids.id(text);
  }

  has(id: number): boolean {
    return Number.isInteger(id) && id >= 0 && id < this.texts.length;
  }

  /** Control and unknown tokens: not part of the text, shown only on request. */
  isHidden(id: number): boolean {
    const type = this.types[id];
    return type === TOKEN_TYPE.control || type === TOKEN_TYPE.unknown;
  }

  /**
   * Whether it may be part of people's words: it stands for its own text. Not control, unknown and byte tokens; and of user-defined
   * ones, which stand for their own text as well, not those that are marks: something in brackets, such as <tool_call> and
   * [/THINK], but for elements of HTML.
   */
  isWords(id: number): boolean {
    const type = this.types[id];
    if (type === TOKEN_TYPE.userDefined) return !isMarkup(this.texts[id]!);
    return !this.isHidden(id) && type !== TOKEN_TYPE.byte;
  }

  /** Whether it is the text of a token that people may not say. */
  isMark(text: string): boolean {
    const id = this.#ids.id(text);
    return id !== undefined && !this.isWords(id);
  }

  /** The id of a token that words may become. */
  wordId(text: string): number | undefined {
    const id = this.#ids.id(text);
    return id === undefined || !this.isWords(id) ? undefined : id;
  }

  /** Length of the longest text in UTF-16 units; at least 2, for a character outside the vocabulary. */
  longestText(): number {
    return this.texts.reduce((longest, { length }) => Math.max(longest, length), 2);
  }

  /** FNV-1a over the texts. */
  fingerprint(): number {
    let hash = 0x811c9dc5;
    for (const text of this.texts) {
      for (let i = 0; i < text.length; i++) {
        hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
      }
      hash = Math.imul(hash ^ 0x10000, 0x01000193);
    }
    return hash >>> 0;
  }

  /** The ids of "<0x00>" ... "<0xFF>"; -1 where the vocabulary has none. */
  byteTokens(): Int32Array {
    const ids = new Int32Array(256);
    for (let byte = 0; byte < 256; byte++) ids[byte] = this.#ids.id(byteTokenText(byte)) ?? -1;
    return ids;
  }
}

const BRACKET = "[<>[\\](){}|｜«»【】〈〉⟨⟩◁▷]";
const IN_BRACKETS = new RegExp(`^[\\s▁]*${BRACKET}.*[\\p{L}\\p{N}].*${BRACKET}[\\s▁]*$`, "su");
/** Elements that vocabularies abbreviate (Gemma's), and no template uses; <s> is BOS elsewhere. */
const HTML =
  /^<\/?(?:a|b|blockquote|br|caption|code|div|em|h[1-6]|hr|i|li|ol|p|pre|span|strong|sub|sup|table|tbody|td|tfoot|th|thead|tr|u|ul)>$/;

/** Whether a user-defined token is a mark rather than words: letters or digits between brackets. */
function isMarkup(text: string): boolean {
  return IN_BRACKETS.test(text) && !HTML.test(text);
}

/** "<0x0A>" for 10. */
export function byteTokenText(byte: number): string {
  return `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
}

/** 10 for "<0x0A>"; undefined for any other text. */
export function parseByteToken(text: string): number | undefined {
  if (text.length !== 6) return undefined;
  const match = /^<0x([0-9A-Fa-f]{2})>$/.exec(text);
  return match ? Number.parseInt(match[1]!, 16) : undefined;
}

// Tokens that end an answer, recognised by text: files often name only one of them as eos_token_id. The list is llama.cpp's, so
// that both stop at the same token.
const END_OF_GENERATION_TEXTS: readonly string[] = [
  "<|eot_id|>",
  "<|im_end|>",
  "<|end|>",
  "<end_of_turn>",
  "<|endoftext|>",
  "<|end_of_text|>",
  "<EOT>",
  "_<EOT>",
  "[EOT]",
  "<｜end▁of▁sentence｜>",
  "<end_of_utterance>",
  "<|return|>",
  "<|call|>",
  "<|flush|>",
  "<|calls|>",
  "</s>",
  "<|eom_id|>",
  "[EOS]",
  "<eos>",
  "<turn|>",
  "<|tool_response>",
  "[e~[",
];

/** The texts that may stand for a missing eot_token_id: the first eleven. */
const END_OF_TURN_TEXTS = END_OF_GENERATION_TEXTS.slice(0, 11);

/**
 * Padding and file separators of fill-in-the-middle models also end an answer: the first text of each row that exists.
 */
const FILL_IN_THE_MIDDLE_TEXTS: readonly (readonly string[])[] = [
  ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
  ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
  ["<|file_sep|>"],
];

/**
 * The other markers of such models are control tokens, even if the file gives them another type. The first text of each row that
 * exists.
 */
const HOLE_TEXTS: readonly (readonly string[])[] = [
  ["<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>"],
  ["<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>"],
  ["<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>"],
];

/** GGUF's keys for these tokens, newest first, and their texts for files without the keys; in the order of FillTokens. */
const FILL: readonly { keys: readonly string[]; texts: readonly string[] }[] = [
  { keys: ["fim_pre", "prefix"], texts: HOLE_TEXTS[0]! },
  { keys: ["fim_suf", "suffix"], texts: HOLE_TEXTS[1]! },
  { keys: ["fim_mid", "middle"], texts: HOLE_TEXTS[2]! },
  { keys: ["fim_rep"], texts: FILL_IN_THE_MIDDLE_TEXTS[1]! },
  { keys: ["fim_sep"], texts: FILL_IN_THE_MIDDLE_TEXTS[2]! },
];

/** The model's fill-in-the-middle tokens; undefined if it was not trained for that. */
export function findFill(
  vocabulary: Vocabulary,
  named: (key: string) => number | undefined,
): FillTokens | undefined {
  const [prefix, suffix, middle, repository, separator] = FILL.map(({ keys, texts }) => {
    const given = keys.map(named).find((id) => id !== undefined && vocabulary.has(id));
    return given ?? texts.map((text) => vocabulary.id(text)).find((id) => id !== undefined);
  });
  if (prefix === undefined || suffix === undefined || middle === undefined) return undefined;
  return {
    prefix,
    suffix,
    middle,
    ...(repository !== undefined && { repository }),
    ...(separator !== undefined && { separator }),
  };
}

/** Channel markers of the harmony format: always shown as text, with any type in the file. */
const ALWAYS_SHOWN_TEXTS = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/**
 * Finds the tokens that end generation. Tokens recognised by text become control tokens even if the file says otherwise:
 * `vocabulary.types` is corrected in place. `named` are the ids in the file itself (eos, eot, eom, ...).
 */
export function findEndOfGeneration(
  vocabulary: Vocabulary,
  named: readonly (number | undefined)[],
): Set<number> {
  const ends = new Set<number>();
  const makeControl = (text: string): boolean => {
    const id = vocabulary.id(text);
    if (id !== undefined) vocabulary.types[id] = TOKEN_TYPE.control;
    return id !== undefined;
  };
  const add = (text: string): boolean => {
    const found = makeControl(text);
    if (found) ends.add(vocabulary.id(text)!);
    return found;
  };
  for (const row of HOLE_TEXTS) row.find(makeControl);
  for (const row of FILL_IN_THE_MIDDLE_TEXTS) row.find(add);
  for (const text of END_OF_GENERATION_TEXTS) add(text);
  for (const text of ALWAYS_SHOWN_TEXTS) {
    const id = vocabulary.id(text);
    if (id !== undefined) vocabulary.types[id] = TOKEN_TYPE.userDefined;
  }
  for (const id of named) if (id !== undefined && vocabulary.has(id)) ends.add(id);
  dropAmbiguousEnds(vocabulary, ends);
  return ends;
}

/** Two model families use a well-known end text for something else; other tokens identify these families. */
function dropAmbiguousEnds(vocabulary: Vocabulary, ends: Set<number>): void {
  const ending = (text: string): number | undefined => {
    const id = vocabulary.id(text);
    return id !== undefined && ends.has(id) ? id : undefined;
  };
  const end = ending("<|end|>"); // harmony and solar: the end of a message, not of the answer
  const calls = ending("<|call|>") ?? ending("<|calls|>");
  const finals = ending("<|return|>") ?? ending("<|flush|>");
  if (end !== undefined && calls !== undefined && finals !== undefined) {
    ends.delete(end);
    vocabulary.types[end] = TOKEN_TYPE.userDefined;
  }
  const s = ending("</s>"); // gemma 4: plain text
  if (s !== undefined && ending("<|tool_response>") !== undefined) {
    ends.delete(s);
    vocabulary.types[s] = TOKEN_TYPE.normal;
  }
}

/** The end-of-turn token by its text, for files that do not name one. */
export function findEndOfTurn(vocabulary: Vocabulary): number | undefined {
  for (const text of END_OF_TURN_TEXTS) {
    const id = vocabulary.id(text);
    if (id !== undefined) return id;
  }
  return undefined;
}

/** The largest vocabularies of real models have 262,144 tokens. */
const MOST_TOKENS: number = 1 << 22;

/** A token without a row in the embedding table cannot be computed. Tables may have more rows: they are padded. */
export function checkVocabularySize(tokens: number, rows: number | undefined): void {
  if (rows !== undefined && tokens > rows) {
    throw new ModelError(
      `tokenizer: the vocabulary has ${tokens} tokens, but the embedding table (token_embd.weight) has ${rows} rows, expected one for each token. The file is damaged, or its tokenizer belongs to another model`,
    );
  }
  if (tokens <= MOST_TOKENS) return;
  throw new ModelError(
    `tokenizer: the vocabulary has ${tokens} tokens, expected at most ${MOST_TOKENS}`,
  );
}

/** Refuses special ids outside the vocabulary, which would crash the embedding lookup. */
export function checkIds(
  vocabulary: Vocabulary,
  ids: Readonly<Record<string, number | undefined>>,
): void {
  for (const [name, id] of Object.entries(ids)) {
    if (id === undefined || vocabulary.has(id)) continue;
    throw new ModelError(
      `tokenizer: the ${name} token is ${id}, but the vocabulary has ids 0 to ${vocabulary.size - 1}`,
    );
  }
}

export function checkSpecialIds(vocabulary: Vocabulary, special: SpecialTokens): void {
  const { bos, eos, eot, unk, pad, sep } = special;
  checkIds(vocabulary, { bos, eos, eot, unk, pad, sep });
  if (special.addBos && bos === undefined) {
    throw new ModelError(
      "tokenizer: the model wants a BOS token before the text but does not name one",
    );
  }
  if (special.addEos && eos === undefined && sep === undefined) {
    throw new ModelError(
      "tokenizer: the model wants an EOS token after the text but does not name one",
    );
  }
}
