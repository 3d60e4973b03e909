// Sequences that nobody computes any more, kept because the next prompt may begin as they do: another turn of the same
// conversation, another branch of it, another user with the same system prompt. Least recently used ones go first when
// blocks are needed; blocks that a running sequence shares with them stay with it.

import type { KvSequence } from "./kv-cache.ts";

/** Token numbers that all kept sequences together may hold: some MB of bookkeeping. */
const MOST_NUMBERS = 4_000_000;
const MOST_SEQUENCES = 256;
const FEWEST_SEQUENCES = 8;

export class PrefixCache {
  /** Least recently used first. */
  #kept: KvSequence[] = [];
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
   * the caller's; what the cache goes on to hold shares its blocks.
   */
  take(tokens: readonly number[]): KvSequence | undefined {
    let best: { sequence: KvSequence; same: number } | undefined;
    for (const sequence of this.#kept) {
      const same = sequence.commonPrefix(tokens);
      if (same > 0 && same >= (best?.same ?? 0)) best = { sequence, same };
    }
    if (!best) return undefined;
    const { sequence, same } = best;
    this.#kept = this.#kept.filter((other) => other !== sequence);
    if (same === sequence.length) return sequence;
    // The rest of it is another branch, which may be continued as well.
    this.#kept.push(sequence);
    const branch = sequence.fork();
    branch.truncate(same);
    return branch;
  }

  /** Takes a sequence over; those that it begins with are then known twice, and go. */
  keep(sequence: KvSequence): void {
    if (sequence.length === 0) {
      sequence.release();
      return;
    }
    this.#kept = this.#kept.filter((other) => {
      if (!sequence.startsWith(other)) return true;
      other.release();
      return false;
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
