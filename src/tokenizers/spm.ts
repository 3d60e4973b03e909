// SentencePiece-style encoding (Llama 1/2, Mistral, TinyLlama, Phi-3, llama2.c): spaces become "▁"; adjacent pieces whose join is a
// token merge, the best score first; pieces that are not a token in the end become byte tokens, "<0x0A>".
//
// As in llama.cpp. SentencePiece's remove_extra_whitespaces does not apply: these models were trained with it off, and
// llama.cpp applies it to unigram vocabularies only.

import { ModelError } from "../base/errors.ts";
import { type Merge, Merger, PairTable, SymbolNames } from "./merge.ts";
import type { PlainTextModel } from "./split-special.ts";
import type { Vocabulary } from "./vocabulary.ts";
import { WordCache } from "./word-cache.ts";

export const SPACE_MARK = "▁";

/** A word with the marks before it: no token extends beyond one of these (see canSplitWords). */
const WORDS = /\u2581*[^\u2581]+|\u2581+/gu;

const utf8 = new TextEncoder();

export interface SpmOptions {
  /** Add a space before the text, and after every special token in it. */
  addSpacePrefix: boolean;
  unknown: number | undefined;
}

export class SpmModel implements PlainTextModel {
  readonly #vocabulary: Vocabulary;
  readonly #options: SpmOptions;
  readonly #names: SymbolNames;
  readonly #merger: Merger;
  readonly #byteTokens: Int32Array; // [256]
  readonly #splitWords: boolean;
  readonly #cache: WordCache = new WordCache();
  #symbols: Int32Array = new Int32Array(256);

  constructor(vocabulary: Vocabulary, options: SpmOptions) {
    this.#vocabulary = vocabulary;
    this.#options = options;
    this.#names = new SymbolNames(vocabulary.texts, (text) => vocabulary.wordId(text));
    const sorted = Float32Array.from(vocabulary.scores).sort();
    this.#merger = new Merger(new PairTable((left, right) => this.#resolve(left, right, sorted)));
    this.#byteTokens = vocabulary.byteTokens();
    this.#splitWords = canSplitWords(vocabulary);
  }

  encode(text: string, ids: number[], check: () => void = () => {}): void {
    const prefixed = this.#options.addSpacePrefix ? ` ${text}` : text;
    const marked = prefixed.replaceAll(" ", SPACE_MARK);
    if (!this.#splitWords) {
      this.#encodeWord(marked, ids, check);
      return;
    }
    for (const [word] of marked.matchAll(WORDS)) {
      check();
      if (this.#cache.append(word, ids)) continue;
      const from = ids.length;
      this.#encodeWord(word, ids, check);
      this.#cache.remember(word, ids, from);
    }
  }

  #encodeWord(word: string, ids: number[], check: () => void): void {
    if (this.#symbols.length < word.length) this.#symbols = new Int32Array(word.length);
    const symbols = this.#symbols;
    let count = 0;
    for (const char of word) symbols[count++] = this.#names.symbol(char);
    count = this.#merger.merge(symbols, count, check);
    for (let i = 0; i < count; i++) {
      if (this.#names.isToken(symbols[i]!)) ids.push(symbols[i]!);
      else this.#pushBytes(this.#names.text(symbols[i]!), ids);
    }
  }

  #pushBytes(char: string, ids: number[]): void {
    const tokens = Array.from(utf8.encode(char), (byte) => this.#byteTokens[byte]!);
    if (tokens.every((token) => token >= 0)) for (const token of tokens) ids.push(token);
    else if (this.#options.unknown !== undefined) ids.push(this.#options.unknown);
    else {
      throw new ModelError(
        `tokenizer: ${JSON.stringify(char)} is not a token, and the vocabulary has neither tokens for its bytes ` +
          "nor an unknown token",
      );
    }
  }

  #resolve(left: number, right: number, sorted: Float32Array): Merge | undefined {
    const symbol = this.#vocabulary.wordId(this.#names.text(left) + this.#names.text(right));
    if (symbol === undefined) return undefined;
    return { rank: betterScores(sorted, this.#vocabulary.scores[symbol]!), symbol };
  }
}

/**
 * The number of better scores among these ascending ones: a rank that equal scores share, so that the leftmost pair goes first. It
 * is computed for the pairs that come up: a start has a handful. NaN is the best score, as it is sorted last.
 */
function betterScores(sorted: Float32Array, score: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (Number.isNaN(score) || sorted[middle]! <= score) low = middle + 1;
    else high = middle;
  }
  return sorted.length - low;
}

/**
 * Whether the text may be split before every run of space marks: true if no merge makes a token with a mark after
 * another character. Then words are independent and can be cached. (Vocabularies that attach the space to the end of a
 * word, "the▁", are tokenized as one piece.)
 */
function canSplitWords(vocabulary: Vocabulary): boolean {
  let cost = 0;
  return vocabulary.texts.every((text) => {
    if (text.lastIndexOf(SPACE_MARK) <= 0 || !/[^\u2581]\u2581/u.test(text)) return true;
    cost += text.length ** 2;
    return cost < MOST_COST && !canBeMerged(text, vocabulary);
  });
}

/** Limit on the characters checked for this: thousands of times the need of a real vocabulary, and less than a second. */
const MOST_COST = 100_000_000;

function canBeMerged(text: string, vocabulary: Vocabulary): boolean {
  const chars = [...text];
  const isSymbol = (part: string[]): boolean =>
    part.length === 1 || vocabulary.wordId(part.join("")) !== undefined;
  return chars.some((_, at) => at > 0 && isSymbol(chars.slice(0, at)) && isSymbol(chars.slice(at)));
}
