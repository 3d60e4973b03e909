// What a sequence keeps in the backend, as the engine sees it: one interface for every kind of state. A Sequence holds one of
// these for each kind that the graph declares (state-kinds.ts); batches, rollback, prefix reuse, sharing and recovery from a
// failed batch are written against it.
//
// Two kinds serve it: KvBlocks (kv-blocks.ts), which can go back to any length that its window still covers, and
// RecurrentSlots (recurrent-slots.ts), which can go back to its checkpoints only.

import type { SlotPair } from "../../graph/batch.ts";
import type { BlockPool } from "./block-pool.ts";

export interface SequenceState {
  readonly pool: BlockPool;
  /** What a batch tells the backend: the cache blocks in order, or the slots that it reads and writes. */
  readonly table?: Int32Array;
  readonly slots?: SlotPair;

  /** What appending `count` tokens takes from the pool. */
  needed(count: number): number;

  /**
   * How many of `count` more tokens one batch may compute: fewer where a checkpoint is wanted on the way. `end`: the length
   * that the tokens at hand lead to.
   */
  batchTokens(count: number, end: number): number;

  /** Makes room for `count` more tokens, which the next batch computes. The pool must have what needed() says. */
  append(count: number, end: number): void;

  /** The batch was computed. */
  commit(): void;

  /** The largest length up to `length` that it can go back to; 0 always works. */
  restorable(length: number): number;

  /** Goes back to a restorable length, or undoes an append() without commit(). */
  restore(length: number): void;

  /** The same past for another sequence; no data is copied until one of them writes. */
  fork(): SequenceState;

  /** Gives everything back to the pool. */
  release(): void;
}
