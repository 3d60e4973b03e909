// Bookkeeping for the paged KV cache of a sequence: which blocks of 32 tokens it holds, in order. All KV states of one
// window share the table; the backend holds the data and copies a block when told to.
//
// Invariants:
// - a sequence of n tokens holds blocks #first to ceil(n / 32), all counted; #first is 0 without a window;
// - a block that is about to be written belongs to one sequence only (copy on write);
// - with a window, a block is released once no later token can read it, even after going back by REWIND_TOKENS.

import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import type { BlockPool } from "./block-pool.ts";
import type { SequenceState } from "./sequence-state.ts";

/**
 * Tokens that a windowed sequence can always go back by: the last token of a prompt is computed again, for its logits.
 */
const REWIND_TOKENS: number = KV_BLOCK_TOKENS;

export interface KvBlocksParts {
  readonly pool: BlockPool;
  readonly maxTokens: number;
  /** Tokens that attention sees, the current one included; Infinity: all. */
  readonly window: number;
  /** A batch computes all known tokens, or none. Default: false. */
  readonly isWhole?: boolean;
  /** Copies the data of a block of this group to another. */
  readonly copy: (from: number, to: number) => void;
}

export class KvBlocks implements SequenceState {
  /** The block table that backends read. Entries before #first and beyond the length are stale. */
  readonly table: Int32Array;
  readonly #parts: KvBlocksParts;
  /** The first block that is held. */
  #first = 0;
  #length = 0;

  constructor(parts: KvBlocksParts) {
    this.#parts = parts;
    this.table = new Int32Array(blocksFor(parts.maxTokens));
  }

  get pool(): BlockPool {
    return this.#parts.pool;
  }

  needed(count: number): number {
    const copies = count > 0 && this.#tailIsShared() ? 1 : 0;
    return blocksFor(this.#length + count) - blocksFor(this.#length) + copies;
  }

  batchTokens(count: number, end: number): number {
    return this.#parts.isWhole && this.#length + count < end ? 0 : count;
  }

  append(count: number): void {
    const { pool, copy } = this.#parts;
    if (count > 0 && this.#tailIsShared()) {
      const tail = Math.floor(this.#length / KV_BLOCK_TOKENS);
      const from = this.table[tail]!;
      const to = pool.take();
      copy(from, to);
      this.table[tail] = to;
      pool.release(from);
    }
    const end = blocksFor(this.#length + count);
    for (let i = blocksFor(this.#length); i < end; i++) this.table[i] = pool.take();
    this.#length += count;
  }

  get aheadTokens(): number {
    return blocksFor(this.#length) * KV_BLOCK_TOKENS - this.#length;
  }

  commit(): void {
    const { pool, window } = this.#parts;
    const unread = this.#length - window + 1 - REWIND_TOKENS; // positions below this are never read again
    while ((this.#first + 1) * KV_BLOCK_TOKENS <= unread) pool.release(this.table[this.#first++]!);
  }

  restorable(length: number): number {
    if (length >= this.#length) return this.#length;
    const read = Math.max(0, length - this.#parts.window + 1);
    return read >= this.#first * KV_BLOCK_TOKENS ? length : 0;
  }

  restore(length: number): void {
    const { pool } = this.#parts;
    const kept = Math.max(this.#first, blocksFor(length));
    for (let i = kept; i < blocksFor(this.#length); i++) pool.release(this.table[i]!);
    this.#length = length;
    if (length === 0) this.#first = 0;
  }

  fork(): KvBlocks {
    const copy = new KvBlocks(this.#parts);
    const held = blocksFor(this.#length);
    for (let i = this.#first; i < held; i++) this.pool.share(this.table[i]!);
    copy.table.set(this.table.subarray(0, held));
    copy.#first = this.#first;
    copy.#length = this.#length;
    return copy;
  }

  unitAt(length: number): number | undefined {
    const block = blocksFor(length) - 1;
    return length <= this.#length && block >= this.#first ? this.table[block] : undefined;
  }

  unitsFor(length: number): number[] {
    const end = blocksFor(length);
    const lengths: number[] = [];
    for (let block = this.#firstFor(length); block < end; block++) {
      lengths.push(Math.min(length, (block + 1) * KV_BLOCK_TOKENS));
    }
    return lengths;
  }

  extendNeeds(length: number): number {
    return blocksFor(length) - this.#firstMissing(length);
  }

  extend(length: number): ReadonlyMap<number, number> {
    const { pool } = this;
    const missing = this.#firstMissing(length);
    const first = this.#firstFor(length);
    const held = blocksFor(this.#length);
    // A partial block is read anew as a whole; blocks before the window are not needed.
    for (let i = this.#first; i < held; i++) {
      if (i >= missing || i < first) pool.release(this.table[i]!);
    }
    const taken = new Map<number, number>();
    for (let i = missing; i < blocksFor(length); i++) {
      this.table[i] = pool.take();
      taken.set(Math.min(length, (i + 1) * KV_BLOCK_TOKENS), this.table[i]!);
    }
    this.#first = first;
    this.#length = length;
    return taken;
  }

  release(): void {
    this.restore(0);
  }

  /** The first block that the token after `length` tokens may read. */
  #firstFor(length: number): number {
    return Math.max(0, Math.floor((length - this.#parts.window + 1) / KV_BLOCK_TOKENS));
  }

  /** The first block needed at `length` that is not held as a whole. */
  #firstMissing(length: number): number {
    const first = this.#firstFor(length);
    if (first < this.#first) return first;
    return Math.max(first, Math.floor(this.#length / KV_BLOCK_TOKENS));
  }

  /** Whether the next token goes into a partly filled block that another sequence also holds. */
  #tailIsShared(): boolean {
    if (this.#length % KV_BLOCK_TOKENS === 0) return false;
    return this.pool.isShared(this.table[Math.floor(this.#length / KV_BLOCK_TOKENS)]!);
  }
}

export function blocksFor(tokens: number): number {
  return Math.ceil(tokens / KV_BLOCK_TOKENS);
}

/** The most blocks that a running sequence holds under a window, with batches of `batchTokens` tokens. */
export function windowBlocks(window: number, batchTokens: number): number {
  // The span may start and end in the middle of a block.
  return blocksFor(window + REWIND_TOKENS + batchTokens) + 1;
}
