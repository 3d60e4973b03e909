// What a batch of n tokens takes, in milliseconds, as a line through the last batches: a + b * n. For background tokens beside
// foreground ones (background.ts), where the question is what one more token costs at the size of the batches that run now, be it one
// token or fifteen drafted ones. (speculate/costs.ts compares single sizes, as multiples of what one token takes.)
//
// Older batches count less, so that a longer context or a busier machine is followed. A batch that took far longer than expected was
// interrupted, and counts as little longer. Nothing is allocated after the constructor.

/** What a batch counts after each further one: the last 50 or so make the line. */
const KEPT = 0.98;
/** The guess of what a token costs: so many more take as long again as one. */
const GUESSED_TURN = 2;
/** What it counts beside measured batches: as much as their sizes differ from their mean, squared and added up. */
const GUESS_WEIGHT = 4;
/** A batch that took longer than so many times what was expected counts as that. */
const MOST_LATE = 1.5;
/** Batches before that is known. */
const KNOWN = 5;

export class BatchLine {
  #count = 0;
  // Weighted sums: of ones, tokens, squared tokens, milliseconds, and tokens times milliseconds.
  #ones = 0;
  #tokens = 0;
  #squares = 0;
  #ms = 0;
  #products = 0;
  /** The line. */
  #first = 1 - 1 / (1 + GUESSED_TURN);
  #each = 1 / (1 + GUESSED_TURN);

  /** A batch of so many tokens took so long. */
  note(tokens: number, ms: number): void {
    if (tokens < 1 || !(ms > 0)) return;
    const expected = this.msOf(tokens);
    const counted = this.#count < KNOWN ? ms : Math.min(ms, MOST_LATE * expected);
    this.#count++;
    this.#ones *= KEPT;
    this.#tokens *= KEPT;
    this.#squares *= KEPT;
    this.#ms *= KEPT;
    this.#products *= KEPT;
    this.#ones++;
    this.#tokens += tokens;
    this.#squares += tokens * tokens;
    this.#ms += counted;
    this.#products += tokens * counted;
    const [meanTokens, meanMs] = [this.#tokens / this.#ones, this.#ms / this.#ones];
    const spread = Math.max(0, this.#squares - this.#tokens * meanTokens);
    const rise = this.#products - this.#tokens * meanMs;
    const guess = meanMs / (meanTokens + GUESSED_TURN);
    const slope = (rise + GUESS_WEIGHT * guess) / (spread + GUESS_WEIGHT);
    // A token never takes more than its share of the time, nor less than nothing.
    this.#each = Math.min(Math.max(slope, 0), meanMs / meanTokens);
    this.#first = meanMs - this.#each * meanTokens;
  }

  /** Expected milliseconds of a batch of so many tokens; relative to one token while nothing is known. */
  msOf(tokens: number): number {
    return this.#first + this.#each * tokens;
  }
}
