// What a batch of n tokens takes on this machine, in milliseconds: the question behind the depth of speculation.
//
// Two sources, of which the second corrects the first:
//   shape      the expected time: from the tune file where one was made, otherwise a guess
//   measured   the last batches of each size, as the engine runs them
// The time of a size is shape x ratio: the median of what its last batches took, relative to the shape. Old measurements are
// of another time: of a shorter context, or of a machine that was busy. So the older and the fewer a size's batches are, the
// more its ratio is that of the smallest size that was measured lately. A size that was slow once, while another program had
// the core, is therefore not avoided for ever. Sizes without batches lie between their nearest neighbours that have some.
//
// The guess without a tune file is optimistic: more tokens are free until arithmetic takes as long as reading the weights.
// An optimistic size is tried, measured and, if it was wrong, not chosen again; a pessimistic one would never be measured.
// What it would be compared with must be known first, see isKnown(). As soon as two sizes were measured, the guess is a line
// through what they took: otherwise each of sixteen sizes would be tried, and again when it was forgotten. A line that rests on
// old measurements only becomes flat again, slowly.
//
// Nothing is allocated after the constructor.

/** Measured sizes are 1 to this; the time of larger batches is extended from its own. */
const MOST_TOKENS = 32;
/** Batches of a size that are kept; their median counts, so three slow ones of seven change nothing. */
const KEPT = 7;
/** After so many other batches, a size must be measured again before others are compared with it. */
const FRESH = 256;
/** The guess: so many tokens are computed in the time of reading the weights. */
const GUESSED_TURN = 8;
/** The guess that more tokens are free weighs as much as so many batches of one size, squared: see #ratio(). */
const FREE_WEIGHT = 0.02;
/** So many batches of a size must be measured before others are compared with it. */
const KNOWN = 2;

/** The expected milliseconds of a batch, all of whose tokens have logits; undefined: not known. */
export type BatchShape = (tokens: number) => number | undefined;

export class BatchCosts {
  readonly #isGuess: boolean;
  /** Expected milliseconds by size, or multiples of one token's where nothing is known. */
  readonly #shape = new Float64Array(MOST_TOKENS + 1);
  /** Milliseconds of the last batches of each size, in a ring: [size, KEPT]. */
  readonly #times = new Float64Array((MOST_TOKENS + 1) * KEPT);
  readonly #medians = new Float64Array(MOST_TOKENS + 1);
  readonly #counts = new Int32Array(MOST_TOKENS + 1);
  /** The number of the last batch of each size. */
  readonly #last = new Float64Array(MOST_TOKENS + 1);
  #batches = 0;
  /** Estimated milliseconds of each size. */
  readonly #ms = new Float64Array(MOST_TOKENS + 1);
  readonly #sorted = new Float64Array(KEPT);

  constructor(shape?: BatchShape) {
    const one = shape?.(1);
    this.#isGuess = one === undefined;
    for (let tokens = 1; tokens <= MOST_TOKENS; tokens++) {
      const known = one === undefined ? undefined : shape?.(tokens);
      const guess = (one ?? 1) * Math.max(1, tokens / GUESSED_TURN);
      // More tokens never take less: a dip would be noise of the measurement.
      this.#shape[tokens] = Math.max(this.#shape[tokens - 1]!, known ?? guess);
    }
    this.#ms.set(this.#shape);
  }

  /**
   * Whether other sizes can be compared with this one. If not, batches of it have to run first: without speculation, if it
   * is the size without drafts. That is so at the start, and now and then while all batches are others.
   */
  isKnown(tokens: number): boolean {
    if (this.#batches < FRESH && !this.#isGuess) return true;
    return tokens > MOST_TOKENS || (this.#counts[tokens]! >= KNOWN && this.#age(tokens) < FRESH);
  }

  /** A batch of so many tokens, all with logits, took so long. */
  note(tokens: number, ms: number): void {
    if (tokens < 1 || tokens > MOST_TOKENS || !(ms > 0)) return;
    const isStale = this.#age(tokens) >= FRESH;
    const count = isStale ? 0 : this.#counts[tokens]!;
    this.#times[tokens * KEPT + (count % KEPT)] = ms;
    this.#counts[tokens] = count + 1;
    this.#medians[tokens] = this.#median(tokens);
    this.#last[tokens] = ++this.#batches;
    this.#estimate();
  }

  /** Estimated milliseconds of a batch of so many tokens; relative to one token while nothing is known. */
  msOf(tokens: number): number {
    if (tokens <= MOST_TOKENS) return this.#ms[tokens]!;
    // Beyond, arithmetic is the limit: time grows with tokens.
    return (this.#ms[MOST_TOKENS]! * tokens) / MOST_TOKENS;
  }

  #estimate(): void {
    let least = 0;
    for (let tokens = MOST_TOKENS; tokens >= 1; tokens--) {
      if (this.#counts[tokens]! > 0 && this.#age(tokens) < FRESH) least = tokens;
    }
    if (this.#isGuess) this.#guess(least);
    const reference = this.#medians[least]! / this.#shape[least]!;
    let from = 0;
    for (let tokens = 1; tokens <= MOST_TOKENS; tokens++) {
      if (this.#counts[tokens] === 0) continue;
      this.#fill(from, tokens, reference);
      from = tokens;
    }
    this.#fill(from, MOST_TOKENS + 1, reference);
  }

  /** A line from the smallest size that was measured lately, by the mean slope to the others. */
  #guess(least: number): void {
    const ms = this.#medians[least]!;
    let slopes = 0;
    let weights = 0;
    for (let tokens = 1; tokens <= MOST_TOKENS; tokens++) {
      if (this.#counts[tokens] === 0 || tokens === least) continue;
      const weight = this.#weight(tokens);
      const slope = (this.#medians[tokens]! - ms) / (tokens - least);
      slopes += weight * Math.max(0, slope);
      weights += weight;
    }
    if (weights === 0) return;
    const slope = slopes / (weights + FREE_WEIGHT);
    for (let tokens = 1; tokens <= MOST_TOKENS; tokens++) {
      // Fewer tokens than were measured take less, but no less than their share.
      const line = Math.max(ms + slope * (tokens - least), (ms * Math.min(tokens, least)) / least);
      this.#shape[tokens] = line;
    }
  }

  /** The sizes after `from` up to `to`, which both have batches, unless they are the ends. */
  #fill(from: number, to: number, reference: number): void {
    const isLast = to > MOST_TOKENS;
    const low = this.#ratio(from === 0 ? to : from, reference);
    const high = this.#ratio(isLast ? from : to, reference);
    for (let tokens = from + 1; tokens <= Math.min(to, MOST_TOKENS); tokens++) {
      const ratio = low + ((high - low) * (tokens - from)) / (to - from);
      this.#ms[tokens] = this.#shape[tokens]! * ratio;
    }
  }

  /** Of a size that has batches. One is little evidence: the square of their number is their weight. */
  #ratio(tokens: number, reference: number): number {
    const weight = this.#weight(tokens);
    return (reference + (weight * this.#medians[tokens]!) / this.#shape[tokens]!) / (1 + weight);
  }

  /** What its batches weigh beside what is expected of it. */
  #weight(tokens: number): number {
    const kept = Math.min(KEPT, this.#counts[tokens]!);
    return (kept / (1 + this.#age(tokens) / FRESH)) ** 2;
  }

  #age(tokens: number): number {
    return this.#batches - this.#last[tokens]!;
  }

  /** The median of the times that are kept of a size. */
  #median(tokens: number): number {
    const kept = Math.min(KEPT, this.#counts[tokens]!);
    const sorted = this.#sorted;
    for (let i = 0; i < kept; i++) {
      const ms = this.#times[tokens * KEPT + i]!;
      let at = i;
      for (; at > 0 && sorted[at - 1]! > ms; at--) sorted[at] = sorted[at - 1]!;
      sorted[at] = ms;
    }
    // Of an even number the lower one: interruptions only ever make a batch slower.
    return sorted[(kept - 1) >> 1]!;
  }
}
