// The tokenizer interface. text-tokenizer.ts implements it; from-metadata.ts, from-json.ts and from-llama2c.ts make a
// tokenizer, each from another description of a vocabulary.

import type { RenderedPrompt } from "../base/rendered-prompt.ts";

export interface SpecialTokens {
  bos: number | undefined;
  eos: number | undefined;
  eot: number | undefined;
  unk: number | undefined;
  pad: number | undefined;
  sep: number | undefined;
  /** Whether encode() adds BOS before / EOS (or SEP) after the text if special tokens are requested. */
  addBos: boolean;
  addEos: boolean;
}

/** For fill-in-the-middle models: the tokens before the prefix, the suffix and the middle. */
export interface FillTokens {
  prefix: number;
  suffix: number;
  middle: number;
  /** Before the name of a project, and before the name of each file in it. */
  repository?: number;
  separator?: number;
}

/** Joins two texts: `before` query `between` document `after`; or a template, where the file has one. */
export interface PairFrame {
  /** A text with {query} and {document} in it, used instead of the tokens. */
  readonly template: string | undefined;
  readonly before: readonly number[];
  readonly between: readonly number[];
  readonly after: readonly number[];
}

export interface EncodeOptions {
  /** Add BOS/EOS as the model's rules say (default true). */
  addSpecial?: boolean | undefined;
  /**
   * Recognise special tokens, such as <|im_start|>: in all of a string, and in the template's part of a rendered prompt (default
   * true; use false for untrusted text).
   */
  parseSpecial?: boolean | undefined;
  /** Called from time to time. Throws when the work should stop because its result is no longer needed. */
  check?: (() => void) | undefined;
}

export interface DecodeOptions {
  /** Show control tokens such as <|im_end|> as text (default false). */
  special?: boolean | undefined;
  /**
   * The ids continue other text (default false). The first token of a text may carry a space that encoding added
   * (SentencePiece); decoding drops it, unless the ids are a continuation, such as generated text.
   */
  continues?: boolean | undefined;
}

export interface Tokenizer {
  /** "spm", "bpe", "wordpiece": for listings. */
  readonly kind: string;
  readonly vocabSize: number;
  readonly special: SpecialTokens;
  /** undefined if the model does not support fill-in-the-middle. */
  readonly fill: FillTokens | undefined;
  /** The way two texts are joined for a model that ranks; undefined: it is not known. */
  readonly pair?: PairFrame | undefined;
  /**
   * No token stands for more UTF-16 units of text than this, so a text has at least length / longestToken tokens;
   * undefined where text may be dropped or joined (WordPiece, normalizers).
   */
  readonly longestToken: number | undefined;
  /** The same number for the same vocabulary, to check that two tokenizers were made from the same file. */
  readonly fingerprint: number;
  encode(text: string | RenderedPrompt, options?: EncodeOptions): number[];
  decode(ids: readonly number[], options?: DecodeOptions): string;
  /** The vocabulary entry as stored ("▁the", "Ġthe", "<0x0A>"): for listings. */
  tokenText(id: number): string;
  /** The bytes that this token adds to the text if it is not the first one; control tokens add none unless `special`. */
  tokenBytes(id: number, options?: DecodeOptions): Uint8Array;
  /** Whether generation ends with this token (eos, eot, <|im_end|>, ...). */
  isEndOfGeneration(id: number): boolean;
  /** All tokens of that kind. */
  readonly endTokens: ReadonlySet<number>;
  /** The id of a token by its exact vocabulary text; undefined if there is none. */
  tokenId(text: string): number | undefined;
  /** Incremental decoding that never emits half a character. */
  stream(options?: DecodeOptions): TokenStream;
}

export interface TokenStream {
  /** The text that is certain after this token: possibly empty, never part of a character. */
  push(id: number): string;
  /** The rest at the end; incomplete bytes become U+FFFD. */
  end(): string;
}
