// What a tokenizer is to the rest of Lantern. text-tokenizer.ts implements it; from-metadata.ts, from-json.ts and
// from-llama2c.ts make one, each from the form in which a file describes its vocabulary.

export interface SpecialTokens {
  bos: number | undefined;
  eos: number | undefined;
  eot: number | undefined;
  unk: number | undefined;
  pad: number | undefined;
  sep: number | undefined;
  /** Whether encode() puts BOS before / EOS (or SEP) after the text when asked for special tokens. */
  addBos: boolean;
  addEos: boolean;
}

/** Of models that fill a gap in a text: what goes before its two sides, and before what fills it. */
export interface FillTokens {
  prefix: number;
  suffix: number;
  middle: number;
  /** Before the name of a project, and before that of each file in it. */
  repository?: number;
  separator?: number;
}

export interface EncodeOptions {
  /** Add BOS/EOS as the model's rules say (default true). */
  addSpecial?: boolean;
  /** Recognise special tokens written in the text, such as <|im_start|> (default true; false for untrusted text). */
  parseSpecial?: boolean;
  /** Called now and then; throws where the work should stop: nobody waits for it any more. */
  check?: (() => void) | undefined;
}

export interface DecodeOptions {
  /** Show control tokens such as <|im_end|> as text (default false). */
  special?: boolean;
  /**
   * The ids go on where other text ended (default false). A text's first token may carry a space that encoding put
   * there (SentencePiece); decoding drops it, unless the ids are a continuation, such as what a model generates.
   */
  continues?: boolean;
}

export interface Tokenizer {
  /** "spm", "bpe", "wordpiece": for listings. */
  readonly kind: string;
  readonly vocabSize: number;
  readonly special: SpecialTokens;
  /** undefined: the model fills no gaps. */
  readonly fill: FillTokens | undefined;
  /**
   * No token stands for more UTF-16 units of a text than this, so that a text has at least length / longestToken tokens;
   * undefined where text may be dropped or joined on the way (WordPiece, normalizers).
   */
  readonly longestToken: number | undefined;
  /** The same number for the same vocabulary: to see that two tokenizers were made from the same file. */
  readonly fingerprint: number;
  encode(text: string, options?: EncodeOptions): number[];
  decode(ids: readonly number[], options?: DecodeOptions): string;
  /** The vocabulary entry as stored ("▁the", "Ġthe", "<0x0A>"): for listings. */
  tokenText(id: number): string;
  /** The bytes that this token adds to the text when it is not the first one; control tokens add none unless `special`. */
  tokenBytes(id: number, options?: DecodeOptions): Uint8Array;
  /** Whether generation ends with this token (eos, eot, <|im_end|>, ...). */
  isEndOfGeneration(id: number): boolean;
  /** The id of a token by its exact vocabulary text, undefined when there is none. */
  tokenId(text: string): number | undefined;
  /** Incremental decoding that never emits half a character. */
  stream(options?: DecodeOptions): TokenStream;
}

export interface TokenStream {
  /** The text that has become certain with this token: possibly empty, never part of a character. */
  push(id: number): string;
  /** What is left at the end; incomplete bytes become U+FFFD. */
  end(): string;
}
