// Unigram encoding (T5, XLM-RoBERTa and their descendants): of all ways to cut a text into tokens, the one with the largest sum of
// scores. Characters are replaced first (charsmap.ts), spaces become "▁", and text without a token becomes the unknown one.
//
// Ties and scores are llama.cpp's: a later way must be better to win, user-defined tokens score 0, and the unknown token 10 below
// the worst.

import type { Charsmap } from "./charsmap.ts";
import type { PlainTextModel } from "./split-special.ts";
import { TOKEN_TYPE, type Vocabulary } from "./vocabulary.ts";
import { WordCache } from "./word-cache.ts";

const SPACE_MARK = "▁";
const WORDS = /\u2581*[^\u2581]+|\u2581+/gu;
/** Below the worst token's score. */
const UNKNOWN_PENALTY = 10;

const utf8 = new TextEncoder();
const newTextDecoder = () => new TextDecoder("utf-8", { ignoreBOM: true });

export interface UnigramOptions {
  /** A space before the text. */
  readonly addSpacePrefix: boolean;
  /** Runs of spaces become one space; spaces at either end are removed. */
  readonly mergeSpaces: boolean;
  readonly charsmap: Charsmap | undefined;
  readonly unknown: number;
}

export class UnigramModel implements PlainTextModel {
  readonly #options: UnigramOptions;
  /** The texts in the order of their UTF-16 units, which a search by prefix needs. */
  readonly #texts: readonly string[];
  readonly #ids: Int32Array;
  readonly #scores: Float64Array; // [tokens], in the order of #texts
  readonly #unknownScore: number;
  readonly #splitWords: boolean;
  readonly #cache: WordCache = new WordCache();
  /** The best way to each unit of a word: its score, its last token, and the start of that. */
  #best: Float64Array = new Float64Array(256);
  #token: Int32Array = new Int32Array(256);
  #start: Int32Array = new Int32Array(256);

  constructor(vocabulary: Vocabulary, options: UnigramOptions) {
    this.#options = options;
    const { texts, types, scores } = vocabulary;
    const { normal, userDefined, unused } = TOKEN_TYPE;
    const matched = texts
      .map((_, id) => id)
      .filter((id) => [normal, userDefined, unused].some((type) => type === types[id]))
      .filter((id) => vocabulary.isWords(id))
      .sort((a, b) => (texts[a]! < texts[b]! ? -1 : texts[a]! > texts[b]! ? 1 : b - a)); // of two with one text, the later counts
    this.#ids = Int32Array.from(matched);
    this.#texts = matched.map((id) => texts[id]!);
    this.#scores = Float64Array.from(matched, (id) =>
      types[id] === userDefined ? 0 : scores[id]!,
    );
    const worst = scores.reduce(
      (least, score, id) => (types[id] === normal && score < least ? score : least),
      3.4028234663852886e38, // the largest float
    );
    this.#unknownScore = Math.fround(worst - UNKNOWN_PENALTY);
    this.#splitWords = !this.#texts.some((text) => /[^\u2581]\u2581/u.test(text));
  }

  encode(text: string, ids: number[], check: () => void = () => {}): void {
    const normalized = this.#normalize(text, check);
    if (!this.#splitWords) {
      this.#encodeWord(normalized, ids, check);
      return;
    }
    const begin = ids.length;
    for (const [word] of normalized.matchAll(WORDS)) {
      check();
      const from = ids.length;
      if (!this.#cache.append(word, ids)) {
        this.#encodeWord(word, ids, check);
        this.#cache.remember(word, ids, from);
      }
      this.#joinUnknown(ids, begin, from);
    }
  }

  /** A word that begins with the unknown token after another one: both are one. */
  #joinUnknown(ids: number[], begin: number, from: number): void {
    const { unknown } = this.#options;
    if (from > begin && ids[from] === unknown && ids[from - 1] === unknown) ids.splice(from, 1);
  }

  #normalize(text: string, check: () => void): string {
    const { charsmap, addSpacePrefix, mergeSpaces } = this.#options;
    const mapped = charsmap
      ? newTextDecoder().decode(charsmap.apply(utf8.encode(text), check))
      : text;
    if (mergeSpaces) {
      const words = mapped.split(/ +/u).filter((word) => word !== "");
      return words.map((word) => SPACE_MARK + word).join("");
    }
    const marked = mapped.replaceAll(" ", SPACE_MARK);
    if (!addSpacePrefix) return marked;
    // The mark goes before the first character that is no space.
    const at = marked.search(/[^\u2581]/u);
    return at < 0 ? marked : `${marked.slice(0, at)}${SPACE_MARK}${marked.slice(at)}`;
  }

  #encodeWord(word: string, ids: number[], check: () => void): void {
    this.#reserve(word.length + 1);
    const [best, token, start] = [this.#best, this.#token, this.#start];
    best.fill(Number.NEGATIVE_INFINITY, 1, word.length + 1);
    best[0] = 0;
    for (let at = 0; at < word.length; ) {
      if ((at & 4095) === 0) check();
      const size = word.codePointAt(at)! > 0xffff ? 2 : 1;
      if (!this.#extend(word, at, at + size)) {
        const score = best[at]! + this.#unknownScore;
        if (score > best[at + size]!) {
          best[at + size] = score;
          token[at + size] = this.#options.unknown;
          start[at + size] = at;
        }
      }
      at += size;
    }
    this.#collect(word.length, ids);
  }

  /** Notes every token that begins at `at`, if it is the best way to its end; whether one ends at `single`. */
  #extend(word: string, at: number, single: number): boolean {
    const [best, token, start, texts] = [this.#best, this.#token, this.#start, this.#texts];
    let [low, high] = [0, texts.length];
    let isFound = false;
    for (let end = at; end < word.length; ) {
      const unit = word.charCodeAt(end);
      low = this.#firstFrom(low, high, end - at, unit);
      high = this.#firstFrom(low, high, end - at, unit + 1);
      end++;
      if (low === high) break;
      if (texts[low]!.length !== end - at) continue;
      if (end === single) isFound = true;
      const score = best[at]! + this.#scores[low]!;
      if (score <= best[end]!) continue;
      best[end] = score;
      token[end] = this.#ids[low]!;
      start[end] = at;
    }
    return isFound;
  }

  /** Of the texts from `low` to `high`, which begin alike, the first with a unit at `index` of at least `unit`. */
  #firstFrom(low: number, high: number, index: number, unit: number): number {
    let [from, to] = [low, high];
    while (from < to) {
      const middle = (from + to) >>> 1;
      // A text that ends here comes before all others: charCodeAt() is NaN.
      if (this.#texts[middle]!.charCodeAt(index) >= unit) to = middle;
      else from = middle + 1;
    }
    return from;
  }

  /** Appends the tokens of the best way to `end`; neighbouring unknown ones are one. */
  #collect(end: number, ids: number[]): void {
    const from = ids.length;
    let last = -1;
    for (let at = end; at > 0; at = this.#start[at]!) {
      const id = this.#token[at]!;
      if (id !== this.#options.unknown || id !== last) ids.push(id);
      last = id;
    }
    for (let i = from, j = ids.length - 1; i < j; i++, j--) {
      [ids[i], ids[j]] = [ids[j]!, ids[i]!];
    }
  }

  #reserve(size: number): void {
    if (this.#best.length >= size) return;
    this.#best = new Float64Array(2 * size);
    this.#token = new Int32Array(2 * size);
    this.#start = new Int32Array(2 * size);
  }
}
