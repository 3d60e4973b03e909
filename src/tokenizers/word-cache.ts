// Caches the tokens of words: most of any text is a few thousand words. The size is bounded: a full cache is cleared,
// which needs no bookkeeping per use.

const MAX_WORDS = 1 << 16;
const MAX_WORD_LENGTH = 64;

export class WordCache {
  readonly #words: Map<string, number | readonly number[]> = new Map();

  /** Appends the cached ids of `word`; false if it is not cached. */
  append(word: string, ids: number[]): boolean {
    const known = this.#words.get(word);
    if (known === undefined) return false;
    if (typeof known === "number") ids.push(known);
    else for (const id of known) ids.push(id);
    return true;
  }

  /** Caches ids[from..] as the ids of `word`. */
  remember(word: string, ids: readonly number[], from: number): void {
    if (word.length > MAX_WORD_LENGTH) return;
    if (this.#words.size >= MAX_WORDS) this.#words.clear();
    const single = ids.length === from + 1;
    this.#words.set(word, single ? ids[from]! : ids.slice(from));
  }
}
