// The implementation of Tokenizer for all kinds. The differences are passed in as parts: how plain text becomes ids
// (spm.ts, bpe.ts, wordpiece.ts, json/), and the bytes of a token.
//
// This file has BOS/EOS and decoding. Decoding works on bytes: a character may be spread over several tokens, so text
// appears only when TextDecoder has all of its bytes.

import { UsageError } from "../base/errors.ts";
import { checkOptionNames, type OptionNames } from "../base/options.ts";
import { asRendered, type RenderedPrompt, type Trusted, trusted } from "../base/rendered-prompt.ts";
import { show } from "../base/show.ts";
import type {
  DecodeOptions,
  EncodeOptions,
  FillTokens,
  PairFrame,
  SpecialTokens,
  Tokenizer,
  TokenStream,
} from "./tokenizer.ts";
import { TOKEN_TYPE, type Vocabulary } from "./vocabulary.ts";

/** Turns a text into ids, without the tokens of addSpecial. */
export interface TextModel {
  /**
   * Appends the ids of `text`; where it is not `trusted`, the text of a control token is ordinary text. `check` is
   * called often, and throws when the work should stop.
   */
  encode(text: string, trusted: Trusted, ids: number[], check: () => void): void;
}

export interface TokenizerParts {
  kind: string;
  vocabulary: Vocabulary;
  special: SpecialTokens;
  fill: FillTokens | undefined;
  pair?: PairFrame | undefined;
  endOfGeneration: ReadonlySet<number>;
  model: TextModel;
  /** The tokens that addSpecial adds before and after the text. */
  prefix: readonly number[];
  suffix: readonly number[];
  /** Bytes of a normal token's text. */
  bytesOf: (text: string) => Uint8Array;
  /** Spaces that decoding drops at the start of a text, because encoding added them. */
  leadingSpaces: number;
  /** Every character of a text is part of a token: none is dropped, and no run of characters is one unknown token. */
  keepsAllText: boolean;
}

const utf8 = new TextEncoder();
const NO_BYTES = new Uint8Array(0);
const SPACE = 0x20;

const encodeOptions: OptionNames<EncodeOptions> = {
  addSpecial: true,
  parseSpecial: true,
  check: true,
};
const decodeOptions: OptionNames<DecodeOptions> = { special: true, continues: true };

export class TextTokenizer implements Tokenizer {
  readonly kind: string;
  readonly vocabSize: number;
  readonly special: SpecialTokens;
  readonly fill: FillTokens | undefined;
  readonly pair: PairFrame | undefined;
  readonly longestToken: number | undefined;
  readonly #parts: TokenizerParts;
  readonly #bytes: (Uint8Array | undefined)[] = [];

  constructor(parts: TokenizerParts) {
    this.kind = parts.kind;
    this.vocabSize = parts.vocabulary.size;
    this.special = parts.special;
    this.fill = parts.fill;
    this.pair = parts.pair;
    this.longestToken = parts.keepsAllText ? parts.vocabulary.longestText() : undefined;
    this.#parts = parts;
  }

  get fingerprint(): number {
    return this.#parts.vocabulary.fingerprint();
  }

  encode(prompt: string | RenderedPrompt, options: EncodeOptions = {}): number[] {
    const given = typeof prompt === "string" ? trusted(prompt) : asRendered(prompt);
    if (given === undefined) throw wrong("text", prompt, "a string or a rendered prompt");
    checkOptionNames("tokenizer: encode()", options, encodeOptions);
    const { addSpecial = true, parseSpecial = true, check = () => {} } = options;
    const { model, prefix, suffix } = this.#parts;
    const ids: number[] = addSpecial ? [...prefix] : [];
    const { text, template } = given;
    try {
      // A lone surrogate becomes U+FFFD, which is one unit as well.
      model.encode(text.toWellFormed(), parseSpecial ? template : [], ids, check);
    } catch (cause) {
      // The regular-expression engine ran out of stack: this happens with some millions of letters in a row.
      if (!(cause instanceof RangeError)) throw cause;
      throw new UsageError(
        `tokenizer: a text of ${text.length} characters has too long a stretch without a word boundary. Split it`,
        { cause },
      );
    }
    if (addSpecial) for (const id of suffix) ids.push(id);
    return ids;
  }

  decode(ids: readonly number[], options: DecodeOptions = {}): string {
    if (!Array.isArray(ids)) throw wrong("ids", ids, "a list of token ids");
    checkOptionNames("tokenizer: decode()", options, decodeOptions);
    const stream = new ByteStream(this, this.#leadingSpaces(options), options);
    const chunks = ids.map((id) => stream.bytes(id));
    const all = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
    let at = 0;
    for (const chunk of chunks) {
      all.set(chunk, at);
      at += chunk.length;
    }
    return newTextDecoder().decode(all);
  }

  stream(options: DecodeOptions = {}): TokenStream {
    const stream = new ByteStream(this, this.#leadingSpaces(options), options);
    const decoder = newTextDecoder();
    return {
      push: (id: number): string => decoder.decode(stream.bytes(id), { stream: true }),
      end: (): string => decoder.decode(),
    };
  }

  tokenText(id: number): string {
    this.#check(id);
    return this.#parts.vocabulary.texts[id]!;
  }

  tokenBytes(id: number, options: DecodeOptions = {}): Uint8Array {
    this.#check(id);
    const { vocabulary } = this.#parts;
    const hidden = vocabulary.isHidden(id);
    if (hidden && !options.special) return NO_BYTES;
    const known = this.#bytes[id];
    if (known !== undefined) return known;
    const text = vocabulary.texts[id]!;
    const bytes = this.#bytesOf(text, vocabulary.types[id]!);
    this.#bytes[id] = bytes;
    return bytes;
  }

  isEndOfGeneration(id: number): boolean {
    return this.endTokens.has(id);
  }

  get endTokens(): ReadonlySet<number> {
    return this.#parts.endOfGeneration;
  }

  tokenId(text: string): number | undefined {
    return this.#parts.vocabulary.id(text);
  }

  #leadingSpaces(options: DecodeOptions): number {
    return options.continues ? 0 : this.#parts.leadingSpaces;
  }

  #bytesOf(text: string, type: number): Uint8Array {
    const { control, unknown, userDefined, byte, normal } = TOKEN_TYPE;
    if (type === control || type === unknown || type === userDefined) return utf8.encode(text);
    if (type === byte) return Uint8Array.of(Number.parseInt(text.slice(3, 5), 16));
    return type === normal ? this.#parts.bytesOf(text) : NO_BYTES;
  }

  #check(id: number): void {
    if (typeof id === "number" && this.#parts.vocabulary.has(id)) return;
    throw new UsageError(
      `tokenizer: token id ${show(id)} is not in the vocabulary, whose ids are 0 to ${this.vocabSize - 1}`,
    );
  }
}

/** The bytes of one token after another, without the spaces that encoding added before the text. */
class ByteStream {
  readonly #tokenizer: TextTokenizer;
  readonly #options: DecodeOptions;
  #spaces: number;

  constructor(tokenizer: TextTokenizer, spaces: number, options: DecodeOptions) {
    this.#tokenizer = tokenizer;
    this.#spaces = spaces;
    this.#options = options;
  }

  bytes(id: number): Uint8Array {
    const bytes = this.#tokenizer.tokenBytes(id, this.#options);
    if (this.#spaces === 0 || bytes.length === 0) return bytes;
    let skip = 0;
    while (skip < this.#spaces && bytes[skip] === SPACE) skip++;
    // After a token of spaces alone, spaces may still have to be dropped from the next one; any other token ends
    // that.
    this.#spaces = skip === bytes.length ? this.#spaces - skip : 0;
    return bytes.subarray(skip);
  }
}

/** Keeps a leading U+FEFF: it is text here, not a byte-order mark. */
function newTextDecoder(): TextDecoder {
  return new TextDecoder("utf-8", { ignoreBOM: true });
}

function wrong(what: string, got: unknown, expected: string): UsageError {
  return new UsageError(`tokenizer: ${what}: got ${show(got)}, expected ${expected}`);
}
