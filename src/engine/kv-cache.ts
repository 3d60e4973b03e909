// The paged KV cache as bookkeeping: blocks of 32 tokens with reference counts, and sequences that list their blocks.
// It knows nothing of models or memory; the backend holds the data and copies a block when told to.
//
// Invariants:
// - a block is free exactly when its count is 0;
// - a sequence of n tokens holds ceil(n / 32) blocks, all counted;
// - a block that is about to be written belongs to one sequence only (copy on write).
// Fork, rollback, branches with a shared past and prefix reuse are all this one mechanism.

import { ContextError } from "../base/errors.ts";
import { KV_BLOCK_TOKENS } from "../graph/step.ts";

/** Blocks with reference counts. */
export class BlockPool {
  /** The most that there may be. */
  readonly most: number;
  readonly #counts: Int32Array;
  /** A stack: the block that was freed last is taken first, so that a small cache stays in a small part of memory. */
  readonly #free: Int32Array;
  #freeCount = 0;
  #size = 0;

  constructor(most: number, size: number = most) {
    this.most = most;
    this.#counts = new Int32Array(most);
    this.#free = new Int32Array(most);
    this.grow(size);
  }

  get size(): number {
    return this.#size;
  }

  /** From now on there are `size` blocks. */
  grow(size: number): void {
    const added = Math.min(size, this.most) - this.#size;
    if (added <= 0) return;
    // New blocks go under those that were in use before, the first of them on top of the others.
    this.#free.copyWithin(added, 0, this.#freeCount);
    for (let i = 0; i < added; i++) this.#free[i] = this.#size + added - 1 - i;
    this.#freeCount += added;
    this.#size += added;
  }

  get usedCount(): number {
    return this.#size - this.#freeCount;
  }

  get freeCount(): number {
    return this.#freeCount;
  }

  /** A block with count 1, or undefined when all are taken. */
  take(): number | undefined {
    if (this.#freeCount === 0) return undefined;
    const block = this.#free[--this.#freeCount]!;
    this.#counts[block] = 1;
    return block;
  }

  share(block: number): void {
    this.#counts[block]!++;
  }

  isShared(block: number): boolean {
    return this.#counts[block]! > 1;
  }

  release(block: number): void {
    const count = --this.#counts[block]!;
    if (count < 0) throw new Error(`KV block ${block} was released more often than taken`);
    if (count === 0) this.#free[this.#freeCount++] = block;
  }
}

/** What the cache needs from whoever owns the memory. */
export interface BlockStore {
  copyKvBlock(from: number, to: number): void;
}

/** A sequence of tokens whose keys and values are cached. */
export class KvSequence {
  /** Cache blocks in order; entries beyond the length are stale. Backends read this as the block table. */
  readonly blocks: Int32Array;
  readonly #pool: BlockPool;
  readonly #store: BlockStore;
  readonly #tokens: Int32Array;
  #length = 0;
  #released = false;

  constructor(pool: BlockPool, store: BlockStore, maxTokens: number) {
    this.#pool = pool;
    this.#store = store;
    this.blocks = new Int32Array(Math.ceil(maxTokens / KV_BLOCK_TOKENS));
    this.#tokens = new Int32Array(maxTokens);
  }

  /** Tokens whose keys and values are (or are being) cached. */
  get length(): number {
    return this.#length;
  }

  get capacity(): number {
    return this.#tokens.length;
  }

  token(position: number): number {
    return this.#tokens[position]!;
  }

  /** How many tokens of `tokens` this sequence starts with. */
  commonPrefix(tokens: readonly number[]): number {
    const most = Math.min(this.#length, tokens.length);
    let same = 0;
    while (same < most && this.#tokens[same] === tokens[same]) same++;
    return same;
  }

  /** Whether it begins with all tokens of the other. */
  startsWith(other: KvSequence): boolean {
    if (other.#length > this.#length) return false;
    for (let i = 0; i < other.#length; i++) if (this.#tokens[i] !== other.#tokens[i]) return false;
    return true;
  }

  /** Blocks that appending `count` tokens would take from the pool. */
  blocksNeeded(count: number): number {
    const held = blocksFor(this.#length);
    const copies = this.#tailIsShared() && count > 0 ? 1 : 0;
    return blocksFor(this.#length + count) - held + copies;
  }

  /** Makes room for a token at the end and returns its position. The pool must have the blocks (see blocksNeeded). */
  append(token: number): number {
    if (this.#released) throw new Error("KV sequence used after release");
    if (this.#length >= this.capacity) {
      throw new ContextError(`the context is full: it holds ${this.capacity} tokens`);
    }
    const index = Math.floor(this.#length / KV_BLOCK_TOKENS);
    if (this.#length % KV_BLOCK_TOKENS === 0) this.blocks[index] = this.#take();
    else if (this.#tailIsShared()) this.#copyBlock(index);
    this.#tokens[this.#length] = token;
    return this.#length++;
  }

  /** Forgets everything after the first `length` tokens. */
  truncate(length: number): void {
    if (length > this.#length || length < 0) {
      throw new Error(`truncate to ${length} of ${this.#length} tokens`);
    }
    for (let i = blocksFor(length); i < blocksFor(this.#length); i++) {
      this.#pool.release(this.blocks[i]!);
    }
    this.#length = length;
  }

  /** A second sequence with the same past; no data is copied until one of them writes. */
  fork(): KvSequence {
    if (this.#released) throw new Error("KV sequence used after release");
    const copy = new KvSequence(this.#pool, this.#store, this.capacity);
    const held = blocksFor(this.#length);
    for (let i = 0; i < held; i++) this.#pool.share(this.blocks[i]!);
    copy.blocks.set(this.blocks.subarray(0, held));
    copy.#tokens.set(this.#tokens.subarray(0, this.#length));
    copy.#length = this.#length;
    return copy;
  }

  /** Gives all blocks back; the sequence is of no use after that. */
  release(): void {
    if (this.#released) return;
    this.truncate(0);
    this.#released = true;
  }

  /** Whether the next token goes into a partly filled block that another sequence holds too. */
  #tailIsShared(): boolean {
    if (this.#length % KV_BLOCK_TOKENS === 0) return false;
    return this.#pool.isShared(this.blocks[Math.floor(this.#length / KV_BLOCK_TOKENS)]!);
  }

  #copyBlock(index: number): void {
    const from = this.blocks[index]!;
    const to = this.#take();
    this.#store.copyKvBlock(from, to);
    this.blocks[index] = to;
    this.#pool.release(from);
  }

  #take(): number {
    const block = this.#pool.take();
    if (block === undefined) throw new Error("KV pool is empty: blocksNeeded() was not asked");
    return block;
  }
}

function blocksFor(tokens: number): number {
  return Math.ceil(tokens / KV_BLOCK_TOKENS);
}
