// The state of a sequence in the backend, as the engine sees it: one interface for every kind. A Sequence has one of
// these for each kind that the graph declares (state-kinds.ts). Batches, rollback, prefix reuse, forks and recovery
// from a failed batch use only this interface.
//
// It has two implementations: KvBlocks (kv-blocks.ts) can go back to any length that its window still covers,
// RecurrentSlots (recurrent-slots.ts) only to its checkpoints.

import type { SlotPair } from "../../graph/batch.ts";
import type { BlockPool } from "./block-pool.ts";

export interface SequenceState {
  readonly pool: BlockPool;
  /** What a batch passes to the backend: the cache blocks in order, or the slots to read and write. */
  readonly table?: Int32Array;
  readonly slots?: SlotPair;

  /** What appending `count` tokens takes from the pool. */
  needed(count: number): number;

  /**
   * How many of `count` more tokens one batch may compute: fewer if a checkpoint is due before that. `end`: the
   * length after all known tokens.
   */
  batchTokens(count: number, end: number): number;

  /** Makes room for `count` more tokens, which the next batch computes. The pool must have what needed() returned. */
  append(count: number, end: number): void;

  /** Call when the batch was computed. */
  commit(): void;

  /** The largest length up to `length` that it can go back to; 0 always works. */
  restorable(length: number): number;

  /** Goes back to a restorable length, or undoes an append() without commit(). */
  restore(length: number): void;

  /** Shares the same past with another sequence; no data is copied until one of them writes. */
  fork(): SequenceState;

  /** Gives everything back to the pool. */
  release(): void;
}
