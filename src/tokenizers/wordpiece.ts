// WordPiece (BERT and its embedding models): the text is normalised and split into words and punctuation marks. Each
// word is covered by the longest tokens from the left, or becomes the unknown token as a whole.
//
// bertWords is llama.cpp's version of BERT's normalisation, for GGUF files. It differs from Hugging Face's (which a
// tokenizer.json describes: json/normalizer.ts) in rare characters: it keeps only the first character of a canonical
// decomposition, and drops spacing marks together with accents.

import type { PlainTextModel } from "./split-special.ts";
import type { Vocabulary } from "./vocabulary.ts";
import { WordCache } from "./word-cache.ts";

export interface BertOptions {
  lowercase: boolean;
  stripAccents: boolean;
}

const WHITE_SPACE = /^\p{White_Space}$/u;
const PUNCTUATION = /^[\p{P}$+<=>^`|~]$/u;
const DROPPED = /^[\0\ufffd\p{Cc}\p{Cf}\p{Co}]$/u;
const MARK = /^\p{M}$/u;

/** Normalises the text and splits it into words; punctuation marks and Chinese characters are words of their own. */
function bertWords(text: string, { lowercase, stripAccents }: BertOptions): string[] {
  const words: string[] = [];
  let word = "";
  const finish = (): void => {
    if (word !== "") words.push(word);
    word = "";
  };
  for (const written of text) {
    const char = stripAccents ? firstChar(written.normalize("NFD")) : written;
    if (WHITE_SPACE.test(char)) finish();
    else if (DROPPED.test(char) || (stripAccents && MARK.test(char))) continue;
    else {
      const plain = lowercase ? firstChar(char.toLowerCase()) : char;
      if (PUNCTUATION.test(char) || isChinese(char.codePointAt(0)!)) {
        finish();
        words.push(plain);
      } else word += plain;
    }
  }
  finish();
  return words;
}

/** BERT's definition of Chinese characters (its sixth range starts late; the models were trained that way). */
export function isChinese(codePoint: number): boolean {
  return (
    (codePoint >= 0x4e00 && codePoint <= 0x9fff) ||
    (codePoint >= 0x3400 && codePoint <= 0x4dbf) ||
    (codePoint >= 0x20000 && codePoint <= 0x2a6df) ||
    (codePoint >= 0x2a700 && codePoint <= 0x2b73f) ||
    (codePoint >= 0x2b740 && codePoint <= 0x2b81f) ||
    (codePoint >= 0x2b920 && codePoint <= 0x2ceaf) ||
    (codePoint >= 0xf900 && codePoint <= 0xfaff) ||
    (codePoint >= 0x2f800 && codePoint <= 0x2fa1f)
  );
}

export interface WordPieceOptions {
  /** The vocabulary's mark before a word's first piece ("▁" in GGUF), and before the others ("##" in JSON). */
  firstMark: string;
  innerMark: string;
  unknown: number;
  /** Longer words become the unknown token without a lookup. */
  maxWordLength: number;
}

/** Real pieces have up to some ten characters; every length up to the longest is looked up at every position. */
const LONGEST_PIECE = 256;

export class WordPieces {
  readonly #vocabulary: Vocabulary;
  readonly #options: WordPieceOptions;
  readonly #longest: number;
  readonly #cache: WordCache = new WordCache();

  constructor(vocabulary: Vocabulary, options: WordPieceOptions) {
    this.#vocabulary = vocabulary;
    this.#options = options;
    const longest = vocabulary.texts.reduce((most, text) => Math.max(most, text.length), 0);
    this.#longest = Math.min(longest, LONGEST_PIECE);
  }

  /** Appends the ids of one word. */
  encode(word: string, ids: number[]): void {
    if (this.#cache.append(word, ids)) return;
    const from = ids.length;
    if (!this.#cover(word, ids)) {
      ids.length = from;
      ids.push(this.#options.unknown);
    }
    this.#cache.remember(word, ids, from);
  }

  #cover(word: string, ids: number[]): boolean {
    const { firstMark, innerMark, maxWordLength } = this.#options;
    if (word.length > maxWordLength && [...word].length > maxWordLength) return false;
    for (let at = 0; at < word.length; ) {
      const mark = at === 0 ? firstMark : innerMark;
      let end = Math.min(word.length, at + this.#longest);
      let id = this.#vocabulary.wordId(mark + word.slice(at, end));
      while (id === undefined && --end > at)
        id = this.#vocabulary.wordId(mark + word.slice(at, end));
      if (id === undefined) return false;
      ids.push(id);
      at = end;
    }
    return true;
  }
}

/** The GGUF kind: normalisation, words and pieces in one. */
export class WordPieceModel implements PlainTextModel {
  readonly #pieces: WordPieces;
  readonly #bert: BertOptions;

  constructor(pieces: WordPieces, bert: BertOptions) {
    this.#pieces = pieces;
    this.#bert = bert;
  }

  encode(text: string, ids: number[], check: () => void = () => {}): void {
    for (const word of bertWords(text, this.#bert)) {
      check();
      this.#pieces.encode(word, ids);
    }
  }
}

/** Removes the spaces that decoding puts before punctuation and contractions; per token, as Hugging Face does. */
export function cleanSpaces(piece: string): string {
  return piece
    .replaceAll(" .", ".")
    .replaceAll(" ?", "?")
    .replaceAll(" !", "!")
    .replaceAll(" ,", ",")
    .replaceAll(" ' ", "'")
    .replaceAll(" n't", "n't")
    .replaceAll(" 'm", "'m")
    .replaceAll(" do not", " don't")
    .replaceAll(" 's", "'s")
    .replaceAll(" 've", "'ve")
    .replaceAll(" 're", "'re");
}

function firstChar(text: string): string {
  return String.fromCodePoint(text.codePointAt(0)!);
}
