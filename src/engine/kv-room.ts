// Room in the KV cache: who may begin, the blocks that they were promised, and memory for these blocks, which grows as
// generations come and sequences are kept, up to what was planned when the model was loaded.
//
// A generation begins when the blocks that it may come to need are promised to nobody else *and* the backend holds them. So a
// device that turns out to have no memory left makes the next one wait, or refuses it; nobody who runs is ever hurt.

import type { Backend } from "../backends/backend.ts";
import { ContextError, MemoryError } from "../base/errors.ts";
import { KV_BLOCK_TOKENS } from "../graph/step.ts";
import { Admission } from "./admission.ts";
import { BlockPool, KvSequence } from "./kv-cache.ts";
import { PrefixCache } from "./prefix-cache.ts";

export interface KvRoomParts {
  readonly backend: Pick<Backend, "copyKvBlock" | "growKv">;
  readonly contextSize: number;
  /** The most blocks that there may be, and those that the backend holds already. */
  readonly most: number;
  readonly held: number;
}

export class KvRoom {
  readonly pool: BlockPool;
  readonly prefixes: PrefixCache;
  readonly admission: Admission;
  readonly #parts: KvRoomParts;
  /** One growth after the other. */
  #growing: Promise<void> = Promise.resolve();

  constructor(parts: KvRoomParts) {
    this.#parts = parts;
    this.pool = new BlockPool(parts.most, parts.held);
    this.prefixes = new PrefixCache(parts.contextSize);
    this.admission = new Admission(parts.most);
  }

  /** Resolves when `wanted` blocks are promised and held; leave() gives them back. Returns how many they are. */
  async enter(wanted: number, isAborted: () => boolean): Promise<number> {
    for (;;) {
      const blocks = await this.admission.enter(wanted, isAborted);
      try {
        await this.#hold();
      } catch (error) {
        this.leave(blocks);
        if (!(error instanceof MemoryError) || blocks > this.pool.size) throw error;
        // There is room for it once others have ended.
        this.admission.limit(this.pool.size);
        continue;
      }
      return blocks;
    }
  }

  leave(blocks: number): void {
    this.admission.leave(blocks);
  }

  newSequence(): KvSequence {
    return new KvSequence(this.pool, this.#parts.backend, this.#parts.contextSize);
  }

  /** Frees blocks of sequences that are only kept, until `count` more tokens fit. */
  makeRoom(sequence: KvSequence, count: number): void {
    // Asked anew after each: a block that was shared with what went is the sequence's own, and need not be copied.
    while (this.pool.freeCount < sequence.blocksNeeded(count)) {
      if (this.prefixes.evict()) continue;
      throw new ContextError(
        `the KV cache is full: it holds ${this.pool.size * KV_BLOCK_TOKENS} tokens, and running generations use them. Open the model with a larger parallel, or contextSize`,
      );
    }
  }

  /** Memory for all that is promised, and for what is kept as long as there is any to be had. */
  #hold(): Promise<void> {
    const grown = this.#growing.then(() => this.#grow());
    this.#growing = grown.catch(() => undefined);
    return grown;
  }

  async #grow(): Promise<void> {
    const { pool, admission } = this;
    const { backend, contextSize } = this.#parts;
    const needed = Math.min(pool.most, pool.usedCount + admission.promised);
    if (needed <= pool.size) return;
    // Some at a time: on a GPU every growth copies what is there.
    const step = Math.ceil(contextSize / KV_BLOCK_TOKENS);
    const size = Math.min(pool.most, Math.max(needed, pool.size + step));
    try {
      await backend.growKv?.(size);
    } catch (error) {
      // Kept sequences can go instead, if that is enough.
      if (error instanceof MemoryError && admission.promised <= pool.size) return;
      throw error;
    }
    pool.grow(size);
  }
}
