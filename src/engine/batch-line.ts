// The time of a batch of n tokens in milliseconds, as a line through the last batches: a + b * n. It serves background tokens beside
// foreground ones (background.ts), which need the cost of one more token at the size of the batches that run now, be it one token or
// fifteen drafted ones. (speculate/costs.ts compares single sizes, as multiples of the time of one token.)
//
// Older batches count less, so that a longer context or a busier machine is followed. A batch that took far longer than expected was
// interrupted, and counts as slightly longer. Nothing is allocated after the constructor.

/** The factor on a batch's weight after each further batch: the last 50 or so make the line. */
const KEPT = 0.98;
/** The initial guess of a token's cost: this many more tokens double a batch's time. */
const GUESSED_TURN = 2;
/** The guess's weight beside measured batches: in squared distances of batch sizes from their mean, added up. */
const GUESS_WEIGHT = 4;
/** A batch that took longer than this multiple of the expected time counts as that multiple. */
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

  /** Records the time of a batch of this many tokens. */
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
    // A token never takes more than its share of the time, nor less than zero.
    this.#each = Math.min(Math.max(slope, 0), meanMs / meanTokens);
    this.#first = meanMs - this.#each * meanTokens;
  }

  /** The expected milliseconds of a batch of this many tokens; relative to one token while nothing was measured. */
  msOf(tokens: number): number {
    return this.#first + this.#each * tokens;
  }
}
