// Sequences that have ended, kept because the next prompt may start the same way: another turn of the same
// conversation, another branch of it, another user with the same system prompt. When blocks are needed, the least
// recently used sequence is evicted; blocks that it shares with a running sequence stay in use there.

import type { Owner } from "../tiers/owners.ts";
import { type AdapterUse, NO_ADAPTERS, sharedTokens } from "./adapter-use.ts";
import type { Sequence } from "./sequence.ts";

/** Token ids that all kept sequences together may hold: some MB of bookkeeping. */
const MOST_NUMBERS = 4_000_000;
const MOST_SEQUENCES = 256;
const FEWEST_SEQUENCES = 8;

interface Candidate {
  readonly sequence: Sequence;
  /** Tokens in common with the prompt. */
  readonly same: number;
  /** The number of them that need not be computed again. */
  readonly usable: number;
}

export class PrefixCache {
  /** Least recently used first. */
  #kept: Sequence[] = [];
  readonly #most: number;
  /** Sequences that were dropped because their room was needed. */
  evicted = 0;

  constructor(contextSize: number) {
    const affordable = Math.floor(MOST_NUMBERS / contextSize);
    this.#most = Math.max(FEWEST_SEQUENCES, Math.min(MOST_SEQUENCES, affordable));
  }

  get sequences(): number {
    return this.#kept.length;
  }

  /**
   * A sequence of exactly the longest known prefix of `tokens`; undefined if none is known. It belongs to the caller; sequences
   * that stay in the cache share its state. The last token is always computed again. `mayBeMoved`: state of tokens that were moved
   * will do (Sequence.exactTokens).
   */
  take(
    tokens: readonly number[],
    mayBeMoved = false,
    adapters: AdapterUse = NO_ADAPTERS,
  ): Sequence | undefined {
    let best: Candidate | undefined;
    for (const sequence of this.#kept) {
      const shared = sharedTokens(sequence.adapters, adapters);
      if (shared === 0) continue;
      const known = Math.min(shared, sequence.commonPrefix(tokens));
      const same = mayBeMoved ? known : Math.min(known, sequence.exactTokens);
      const usable = sequence.restorable(Math.min(same, tokens.length - 1));
      if (usable <= 0) continue;
      const candidate = { sequence, same, usable };
      if (!best || isBetter(candidate, best)) best = candidate;
    }
    if (!best) return undefined;
    const { sequence, same, usable } = best;
    this.#kept = this.#kept.filter((other) => other !== sequence);
    // One that ends where the prompt does stays: others may have the same prompt.
    if (usable === sequence.length && sequence.adapters.key === adapters.key) return sequence;
    // The rest of it is another branch, which may be continued as well.
    this.#kept.push(sequence);
    const branch = sequence.fork(adapters);
    branch.restore(branch.restorable(same));
    return branch;
  }

  /** The number of these tokens that need not be computed. */
  known(tokens: readonly number[], adapters: AdapterUse = NO_ADAPTERS): number {
    let most = 0;
    for (const sequence of this.#kept) {
      const shared = sharedTokens(sequence.adapters, adapters);
      if (shared === 0) continue;
      const same = Math.min(shared, sequence.commonPrefix(tokens), sequence.exactTokens);
      most = Math.max(most, sequence.restorable(Math.min(same, tokens.length - 1)));
    }
    return most;
  }

  /** Takes over a sequence. Kept sequences that are a prefix of it are dropped. */
  keep(sequence: Sequence): void {
    if (sequence.length === 0) {
      sequence.release();
      return;
    }
    this.#kept = this.#kept.filter((other) => {
      const isKnown =
        sequence.startsWith(other) &&
        sequence.restorable(other.length) === other.length &&
        (sequence.exactTokens >= other.length || !other.isExact);
      if (isKnown) other.release();
      return !isKnown;
    });
    this.#kept.push(sequence);
    while (this.#kept.length > this.#most) this.evict();
  }

  /** Least recently used first. */
  get all(): readonly Sequence[] {
    return this.#kept;
  }

  /** Drops sequences that hold only a prefix of these tokens, or all of them and more; returns the number of dropped sequences. */
  drop(tokens: readonly number[]): number {
    const before = this.#kept.length;
    this.#kept = this.#kept.filter((sequence) => {
      const same = sequence.commonPrefix(tokens);
      const isOther = same < Math.min(sequence.length, tokens.length);
      if (!isOther) sequence.release();
      return isOther;
    });
    return before - this.#kept.length;
  }

  /** Drops the sequences of these owners. State that others share is also in sequences of their own. */
  forget(owners: readonly Owner[]): void {
    this.#kept = this.#kept.filter((sequence) => {
      const isTheirs = owners.includes(sequence.owner);
      if (isTheirs) sequence.release();
      return !isTheirs;
    });
  }

  /** Drops all. */
  clear(): void {
    const before = this.evicted;
    while (this.evict());
    this.evicted = before;
  }

  /** Drops the least recently used sequence; false if there is none. */
  evict(): boolean {
    const oldest = this.#kept.shift();
    if (!oldest) return false;
    oldest.release();
    this.evicted++;
    return true;
  }
}

/** Whether `one` is the better match: at least as good, so that the later of two equal ones wins. */
function isBetter(one: Candidate, other: Candidate): boolean {
  return one.usable === other.usable ? one.same >= other.same : one.usable > other.usable;
}
