// The state of a sequence in the backend, as the engine sees it: one interface for every kind. A Sequence has one of
// these for each kind that the graph declares (state-kinds.ts). Batches, rollback, prefix reuse, forks and recovery
// from a failed batch use only this interface; so do copies of the state outside of the backend (../tiers).
//
// It has two implementations: KvBlocks (kv-blocks.ts) can go back to any length that its window still covers,
// RecurrentSlots (recurrent-slots.ts) only to its checkpoints.

import type { SlotPair } from "../../graph/batch.ts";
import type { BlockPool } from "./block-pool.ts";

export interface SequenceState {
  readonly pool: BlockPool;
  /** The numbers that a batch passes to the backend: the cache blocks in order, or the slots to read and write. */
  readonly table?: Int32Array;
  readonly slots?: SlotPair;

  /** The units that appending `count` tokens takes from the pool. */
  needed(count: number): number;

  /**
   * The number of `count` more tokens that one batch may compute: fewer if a checkpoint is due before that. `end`: the length after
   * all known tokens.
   */
  batchTokens(count: number, end: number): number;

  /** The pool must have the units that needed() returned. */
  append(count: number, end: number): void;

  /** After append(): the number of further tokens it has room for, in memory that no other sequence sees. Absent: none. */
  readonly aheadTokens?: number;

  /** Call when the batch was computed. */
  commit(): void;

  /** The largest length up to `length` that it can go back to; 0 always works. */
  restorable(length: number): number;

  /**
   * Keeps the state before the next batch restorable until letGo(), restore() or the batch after it. Absent: any length is
   * restorable.
   */
  hold?(): void;
  letGo?(): void;

  /** Goes back to a restorable length, or undoes an append() without commit(). */
  restore(length: number): void;

  /** Shares the same past with another sequence; no data is copied until one of them writes. */
  fork(): SequenceState;

  /**
   * The number in the pool of the unit that holds the state of the tokens up to `length`, a block boundary or the current length:
   * the block that ends there, or the slot. undefined: it is not held (any more).
   */
  unitAt(length: number): number | undefined;

  /** The lengths whose units are needed to continue at `length`, ascending. */
  unitsFor(length: number): number[];

  /** The units that extend(length) takes from the pool. */
  extendNeeds(length: number): number;

  /**
   * Goes forward to `length` without computing: takes the units that are missing from the pool and returns them by length, for the
   * caller to fill before the next batch. Units that are not needed there are given back.
   */
  extend(length: number): ReadonlyMap<number, number>;

  /** Gives everything back to the pool. */
  release(): void;
}
