// Sequences that nobody computes any more, kept because the next prompt may begin as they do: another turn of the same
// conversation, another branch of it, another user with the same system prompt. Least recently used ones go first when
// blocks are needed; blocks that a running sequence shares with them stay with it.

import type { Sequence } from "./sequence.ts";

/** Token numbers that all kept sequences together may hold: some MB of bookkeeping. */
const MOST_NUMBERS = 4_000_000;
const MOST_SEQUENCES = 256;
const FEWEST_SEQUENCES = 8;

interface Candidate {
  readonly sequence: Sequence;
  /** Tokens that it has in common with the prompt. */
  readonly same: number;
  /** Tokens of these that need not be computed again. */
  readonly usable: number;
}

export class PrefixCache {
  /** Least recently used first. */
  #kept: Sequence[] = [];
  readonly #most: number;

  constructor(contextSize: number) {
    const affordable = Math.floor(MOST_NUMBERS / contextSize);
    this.#most = Math.max(FEWEST_SEQUENCES, Math.min(MOST_SEQUENCES, affordable));
  }

  get sequences(): number {
    return this.#kept.length;
  }

  /**
   * A sequence that holds the longest beginning of `tokens` that is known, and nothing else; undefined: nothing is. It is
   * the caller's; what the cache goes on to hold shares its state. The last token is computed anew in any case.
   */
  take(tokens: readonly number[]): Sequence | undefined {
    let best: Candidate | undefined;
    for (const sequence of this.#kept) {
      const same = sequence.commonPrefix(tokens);
      const usable = sequence.restorable(Math.min(same, tokens.length - 1));
      if (usable <= 0) continue;
      const candidate = { sequence, same, usable };
      if (!best || isBetter(candidate, best)) best = candidate;
    }
    if (!best) return undefined;
    const { sequence, same } = best;
    this.#kept = this.#kept.filter((other) => other !== sequence);
    if (same === sequence.length) return sequence;
    // The rest of it is another branch, which may be continued as well.
    this.#kept.push(sequence);
    const branch = sequence.fork();
    branch.restore(branch.restorable(same));
    return branch;
  }

  /** Takes a sequence over; those that it begins with are then known twice, and go. */
  keep(sequence: Sequence): void {
    if (sequence.length === 0) {
      sequence.release();
      return;
    }
    this.#kept = this.#kept.filter((other) => {
      const isKnown =
        sequence.startsWith(other) && sequence.restorable(other.length) === other.length;
      if (isKnown) other.release();
      return !isKnown;
    });
    this.#kept.push(sequence);
    while (this.#kept.length > this.#most) this.evict();
  }

  /** Gives up the least recently used one; false: there is none. */
  evict(): boolean {
    const oldest = this.#kept.shift();
    oldest?.release();
    return oldest !== undefined;
  }
}

/** The later of two that are alike. */
function isBetter(one: Candidate, other: Candidate): boolean {
  return one.usable === other.usable ? one.same >= other.same : one.usable > other.usable;
}
