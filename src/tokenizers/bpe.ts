// Byte-pair encoding of words: pairs merge in the order of the model's merge list. It works on the bytes of a word in
// GPT-2's alphabet (Llama 3, Qwen, GPT-2, ...), or on its characters with a fallback to bytes (Llama-2-style
// tokenizer.json).
//
// pretokenize.ts (GGUF) or json/pre-tokenizer.ts (tokenizer.json) splits a text into words.

import { byteToChar, encodeByteLevel } from "./byte-level.ts";
import { type Merge, Merger, PairTable, SymbolNames } from "./merge.ts";
import type { Vocabulary } from "./vocabulary.ts";
import { WordCache } from "./word-cache.ts";

export interface BpeOptions {
  /** Rank of a merge by mergeKey(left, right). */
  merges: ReadonlyMap<string, number>;
  /** The units of a word: bytes, written in the byte alphabet, or characters. */
  units: "bytes" | "characters";
  /** A word that is itself a token becomes that token, regardless of the merges. */
  ignoreMerges: boolean;
  /** For texts without a token: "<0x0A>" tokens, or else the unknown token, or else none. */
  byteFallback: boolean;
  unknown: number | undefined;
  /** One unknown token for several in a row. */
  fuseUnknown: boolean;
}

/** Vocabulary texts contain no space (it is "Ġ" or "▁"), so this is unambiguous. Files also write merges this way. */
export function mergeKey(left: string, right: string): string {
  return `${left} ${right}`;
}

const utf8 = new TextEncoder();

export class BpeWords {
  readonly #vocabulary: Vocabulary;
  readonly #options: BpeOptions;
  readonly #names: SymbolNames;
  readonly #merger: Merger;
  readonly #byteSymbols: Int32Array; // [256] the symbol of each byte's character
  readonly #byteTokens: Int32Array; // [256] "<0x00>" ...
  readonly #cache: WordCache = new WordCache();
  #symbols: Int32Array = new Int32Array(256);

  constructor(vocabulary: Vocabulary, options: BpeOptions) {
    this.#vocabulary = vocabulary;
    this.#options = options;
    this.#names = new SymbolNames(vocabulary.texts, (text) => vocabulary.wordId(text));
    this.#merger = new Merger(new PairTable((left, right) => this.#resolve(left, right)));
    this.#byteSymbols = Int32Array.from(byteToChar, (char) => this.#names.symbol(char));
    this.#byteTokens = vocabulary.byteTokens();
  }

  /** Appends the ids of one word. */
  encode(word: string, ids: number[], check?: () => void): void {
    if (this.#cache.append(word, ids)) return;
    const from = ids.length;
    this.#encodeNew(word, ids, check);
    this.#cache.remember(word, ids, from);
  }

  #encodeNew(word: string, ids: number[], check: (() => void) | undefined): void {
    const bytes = this.#options.units === "bytes" ? utf8.encode(word) : undefined;
    if (this.#options.ignoreMerges) {
      const whole = this.#vocabulary.wordId(bytes ? encodeByteLevel(bytes) : word);
      if (whole !== undefined) {
        ids.push(whole);
        return;
      }
    }
    let count = 0;
    const symbols = this.#room(bytes ? bytes.length : word.length);
    if (bytes) for (const byte of bytes) symbols[count++] = this.#byteSymbols[byte]!;
    else for (const char of word) symbols[count++] = this.#names.symbol(char);
    count = this.#merger.merge(symbols, count, check);
    const from = ids.length;
    for (let i = 0; i < count; i++) {
      if (this.#names.isToken(symbols[i]!)) ids.push(symbols[i]!);
      else this.#pushFallback(this.#names.text(symbols[i]!), ids, from);
    }
  }

  #room(length: number): Int32Array {
    if (this.#symbols.length < length) this.#symbols = new Int32Array(length);
    return this.#symbols;
  }

  #pushFallback(text: string, ids: number[], from: number): void {
    const { byteFallback, unknown, fuseUnknown } = this.#options;
    if (byteFallback) {
      const tokens = Array.from(utf8.encode(text), (byte) => this.#byteTokens[byte]!);
      if (tokens.every((token) => token >= 0)) {
        for (const token of tokens) ids.push(token);
        return;
      }
    }
    if (unknown !== undefined) {
      if (!(fuseUnknown && ids.length > from && ids.at(-1) === unknown)) ids.push(unknown);
      return;
    }
    // The merged text is no token: fall back to its characters.
    const chars = [...text];
    if (chars.length < 2) return;
    for (const char of chars) {
      const token = this.#vocabulary.wordId(char);
      if (token !== undefined) ids.push(token);
    }
  }

  #resolve(left: number, right: number): Merge | undefined {
    const leftText = this.#names.text(left);
    const rightText = this.#names.text(right);
    const rank = this.#options.merges.get(mergeKey(leftText, rightText));
    if (rank === undefined || this.#vocabulary.isMark(leftText + rightText)) return undefined;
    return { rank, symbol: this.#names.symbol(leftText + rightText) };
  }
}
