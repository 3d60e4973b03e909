// The time of a batch of n tokens on this machine, in milliseconds: it decides the depth of speculation.
//
// Two sources, of which the second corrects the first:
//   shape      the expected time, as a multiple of one token's: from the tune file if there is one, otherwise a guess
//   measured   the last batches of each size, as the engine runs them
// The measured value of a size is a multiple as well: the median of its last batches, each divided by the time of one token at that
// moment. A machine that was busy then, or a context that was shorter, does not make it look slow or fast now. The older and the fewer
// a size's batches are, the more the shape counts. So a size that was slow once, while another program had the core, is not avoided for
// ever. Sizes without batches lie between their nearest neighbours that have some.
//
// The guess without a tune file is optimistic: more tokens are free until arithmetic takes as long as reading the weights. An
// optimistic size is tried, measured and, if it was wrong, not chosen again; a pessimistic one would never be measured. The size to
// compare it with must be known first, see isKnown(). As soon as two sizes were measured, the guess is a line through their times:
// otherwise each of sixteen sizes would be tried, and again when it was forgotten. A line that rests on old measurements only becomes
// flat again, slowly. The first line of a model that was just opened comes from its prompt: the time of a prompt token. A batch of
// eight tokens that turned out to take four times as long as one is noticed in a short text.
//
// Nothing is allocated after the constructor.

import type { BatchShape } from "../../graph/batch.ts";

/** Measured sizes are 1 to this; the time of larger batches is extended from its own. */
const MOST_TOKENS = 32;
/** Batches that are kept of a size; their median counts, so three slow ones of seven have no effect. */
const KEPT = 7;
/** After this many other batches, a size must be measured again before others are compared with it. */
const FRESH = 256;
/** The guess: this many tokens are computed in the time of reading the weights. */
const GUESSED_TURN = 8;
/** The weight, beside measured sizes, of the guess that more tokens are free: see #weight(). */
const FREE_WEIGHT = 0.5;
/** The weight of a prompt: its tokens have no logits, and the first one's kernels are new. */
const PROMPT_WEIGHT = 2;
/** Shorter prompts say little about the cost of a further token. */
const FEWEST_PROMPT_TOKENS = 8;
/** So many batches of a size must be measured before others are compared with it. */
const KNOWN = 2;

export class BatchCosts {
  readonly #isGuess: boolean;
  /** Expected time by size, as a multiple of one token's. */
  readonly #shape = new Float64Array(MOST_TOKENS + 1);
  /** Milliseconds of the last batches of each size, in a ring, and multiples of one token's: [size, KEPT]. */
  readonly #times = new Float64Array((MOST_TOKENS + 1) * KEPT);
  readonly #multiples = new Float64Array((MOST_TOKENS + 1) * KEPT);
  /** The medians of the multiples. */
  readonly #medians = new Float64Array(MOST_TOKENS + 1);
  readonly #counts = new Int32Array(MOST_TOKENS + 1);
  /** The number of the last batch of each size. */
  readonly #last = new Float64Array(MOST_TOKENS + 1);
  #batches = 0;
  /** The last batch of a prompt: its tokens and milliseconds, and then the time of one of its tokens, as a multiple of one token's. */
  #promptTokens = 0;
  #promptMs = 0;
  #promptSlope = -1;
  #promptAt = 0;
  /** Estimated multiples, and the milliseconds that they are multiples of: of one token, as soon as such a batch was measured. */
  readonly #estimates = new Float64Array(MOST_TOKENS + 1);
  #oneMs = 1;
  readonly #sorted = new Float64Array(KEPT);

  constructor(shape?: BatchShape) {
    const one = shape?.(1);
    this.#isGuess = one === undefined;
    this.#oneMs = one ?? 1;
    for (let tokens = 1; tokens <= MOST_TOKENS; tokens++) {
      const known = one === undefined ? undefined : shape?.(tokens);
      const guess = Math.max(1, tokens / GUESSED_TURN);
      // More tokens never take less: a dip would be noise of the measurement.
      const multiple = known === undefined ? guess : known / this.#oneMs;
      this.#shape[tokens] = Math.max(this.#shape[tokens - 1]!, multiple);
    }
    this.#estimates.set(this.#shape);
  }

  /**
   * Whether other sizes can be compared with this one. If not, batches of it have to run first: without speculation, if it
   * is the size without drafts. That is so at the start, and now and then while all batches are others.
   */
  isKnown(tokens: number): boolean {
    if (this.#batches < FRESH && !this.#isGuess) return true;
    return tokens > MOST_TOKENS || (this.#counts[tokens]! >= KNOWN && this.#age(tokens) < FRESH);
  }

  /** Records the time of a batch of this many tokens, all with logits. */
  note(tokens: number, ms: number): void {
    if (tokens < 1 || tokens > MOST_TOKENS || !(ms > 0)) return;
    const isStale = this.#age(tokens) >= FRESH;
    const count = isStale ? 0 : this.#counts[tokens]!;
    const at = tokens * KEPT + (count % KEPT);
    this.#times[at] = ms;
    this.#counts[tokens] = count + 1;
    this.#last[tokens] = ++this.#batches;
    const least = this.#leastFresh();
    // The smallest size gives the time of one token, the others their multiples of it.
    this.#multiples[at] = tokens === least ? this.#estimates[tokens]! : ms / this.#oneMs;
    this.#medians[tokens] = this.#median(this.#multiples, tokens);
    if (this.#promptMs > 0) this.#comparePrompt(tokens, ms);
    if (this.#isGuess) this.#guess(least);
    this.#estimate();
    this.#oneMs = this.#median(this.#times, least) / this.#estimates[least]!;
  }

  /** Records the time of a batch of this many prompt tokens, nearly all without logits. */
  notePrompt(tokens: number, ms: number): void {
    if (!this.#isGuess || tokens < FEWEST_PROMPT_TOKENS || !(ms > 0)) return;
    this.#promptTokens = tokens;
    this.#promptMs = ms;
  }

  /** Estimated milliseconds of a batch of this many tokens; relative to one token while nothing was measured. */
  msOf(tokens: number): number {
    if (tokens <= MOST_TOKENS) return this.#oneMs * this.#estimates[tokens]!;
    // Beyond, arithmetic is the limit: time grows with tokens.
    return (this.#oneMs * this.#estimates[MOST_TOKENS]! * tokens) / MOST_TOKENS;
  }

  #leastFresh(): number {
    let tokens = 1;
    while (this.#counts[tokens] === 0 || this.#age(tokens) >= FRESH) tokens++;
    return tokens;
  }

  /** Called after the first batch: later ones may be faster, or slower, than any was when the prompt was computed. */
  #comparePrompt(tokens: number, ms: number): void {
    const more = (this.#promptMs - ms) / Math.max(1, this.#promptTokens - tokens);
    this.#promptSlope = Math.max(0, (more * this.#estimates[tokens]!) / ms);
    this.#promptMs = 0;
    this.#promptAt = this.#batches;
  }

  /** A line from the smallest size that was measured lately, by the mean slope to the others and to the prompt. */
  #guess(least: number): void {
    const first = this.#estimates[least]!;
    const hasPrompt = this.#promptSlope >= 0;
    let weights = hasPrompt
      ? PROMPT_WEIGHT / (1 + (this.#batches - this.#promptAt) / FRESH) ** 2
      : 0;
    let slopes = weights * this.#promptSlope;
    for (let tokens = 1; tokens <= MOST_TOKENS; tokens++) {
      if (this.#counts[tokens] === 0 || tokens === least) continue;
      const weight = this.#weight(tokens);
      slopes += weight * Math.max(0, (this.#medians[tokens]! - first) / (tokens - least));
      weights += weight;
    }
    if (weights === 0) return;
    // A token more never takes more than its share, nor do fewer tokens take less than theirs.
    const slope = Math.min(first / least, slopes / (weights + FREE_WEIGHT));
    for (let tokens = 1; tokens <= MOST_TOKENS; tokens++) {
      this.#shape[tokens] = first + slope * (tokens - least);
    }
  }

  #estimate(): void {
    let from = 0;
    for (let tokens = 1; tokens <= MOST_TOKENS; tokens++) {
      if (this.#counts[tokens] === 0) continue;
      this.#fill(from, tokens);
      from = tokens;
    }
    this.#fill(from, MOST_TOKENS + 1);
  }

  /** The sizes after `from` up to `to`, which both have batches, unless they are the ends. */
  #fill(from: number, to: number): void {
    const isLast = to > MOST_TOKENS;
    const low = this.#ratio(from === 0 ? to : from);
    const high = this.#ratio(isLast ? from : to);
    for (let tokens = from + 1; tokens <= Math.min(to, MOST_TOKENS); tokens++) {
      const ratio = low + ((high - low) * (tokens - from)) / (to - from);
      this.#estimates[tokens] = this.#shape[tokens]! * ratio;
    }
  }

  /** The time of a size with batches, relative to its shape. */
  #ratio(tokens: number): number {
    const weight = this.#weight(tokens);
    return (1 + (weight * this.#medians[tokens]!) / this.#shape[tokens]!) / (1 + weight);
  }

  /**
   * The weight of a size's batches beside its expected time. One batch is little evidence, the more so as the first of a size is slow.
   */
  #weight(tokens: number): number {
    const kept = Math.min(KEPT, this.#counts[tokens]!) - 0.5;
    return (kept / (1 + this.#age(tokens) / FRESH)) ** 2;
  }

  #age(tokens: number): number {
    return this.#batches - this.#last[tokens]!;
  }

  /** The median of the kept batches of a size. */
  #median(kept: Float64Array, tokens: number): number {
    const count = Math.min(KEPT, this.#counts[tokens]!);
    const sorted = this.#sorted;
    for (let i = 0; i < count; i++) {
      const value = kept[tokens * KEPT + i]!;
      let at = i;
      for (; at > 0 && sorted[at - 1]! > value; at--) sorted[at] = sorted[at - 1]!;
      sorted[at] = value;
    }
    // For an even number the lower one: interruptions only ever make a batch slower.
    return sorted[(count - 1) >> 1]!;
  }
}
