// Bookkeeping for the recurrent state of a sequence: which slot of the backend holds it. A slot holds the floats of
// all recurrent states of the graph after some number of tokens.
//
// A slot is written by one batch and never again: a batch reads slot `from` and writes slot `to`. So a failed batch
// loses nothing, a fork shares the slot, and a checkpoint is a slot that is kept: no data is ever copied.
//
// Checkpoints are at block boundaries: the last one before the end of a prompt, because the next prompt often starts
// with the same tokens, and as many tokens apart as CheckpointDistance says. A sequence keeps its newest MOST_CHECKPOINTS.
//
// A batch with drafted tokens may have to be undone after it was computed: hold() keeps the slot that it read until the tokens are
// verified. Until then no other slot is written, so this takes no more slots than a batch does.

import { KV_BLOCK_TOKENS, NO_SLOT, type SlotPair } from "../../graph/batch.ts";
import type { BlockPool } from "./block-pool.ts";
import type { SequenceState } from "./sequence-state.ts";

const MOST_CHECKPOINTS = 2;

/** The most slots of a running sequence: its state, the one that a batch writes, and checkpoints. */
export const RUNNING_SLOTS: number = 2 + MOST_CHECKPOINTS;

/** The number of tokens between checkpoints, a multiple of a block; it may change while a sequence runs. */
export interface CheckpointDistance {
  readonly tokens: number;
}

interface Checkpoint {
  readonly length: number;
  readonly slot: number;
}

export class RecurrentSlots implements SequenceState {
  readonly pool: BlockPool;
  readonly #distance: CheckpointDistance;
  /** NO_SLOT as `from`: start from zeros; as `to`: no slot is written. */
  readonly slots: { from: number; to: number } & SlotPair = { from: NO_SLOT, to: NO_SLOT };
  /** Batches that are computed before they are asked for do not write to slots: the backend has buffers of its own for them. */
  readonly aheadTokens: number = Infinity;
  /** Tokens that `from` has seen. */
  #length = 0;
  /** Tokens of the running batch. */
  #appended = 0;
  /** Whether the state after that batch becomes a checkpoint. */
  #isCheckpoint = false;
  /** Whether the slot that the next batch reads is held. */
  #holds = false;
  /** The checkpoint in that slot, after the batch. */
  #held: Checkpoint | undefined;
  /** Oldest first. */
  #checkpoints: Checkpoint[] = [];

  constructor(pool: BlockPool, distance: CheckpointDistance) {
    this.pool = pool;
    this.#distance = distance;
  }

  needed(count: number): number {
    return count > 0 ? 1 : 0;
  }

  batchTokens(count: number, end: number): number {
    return Math.min(count, this.#next(end) - this.#length);
  }

  append(count: number, end: number): void {
    if (count === 0) return;
    if (this.#appended > 0) throw new Error("a batch was appended before the one before was over");
    this.#drop();
    this.slots.to = this.pool.take();
    this.#appended = count;
    this.#isCheckpoint = this.#next(end) === this.#length + count;
  }

  commit(): void {
    if (this.#appended === 0) return;
    if (this.#holds) this.#held = { length: this.#length, slot: this.slots.from };
    else if (this.slots.from !== NO_SLOT) this.pool.release(this.slots.from);
    this.#holds = false;
    this.slots.from = this.slots.to;
    this.slots.to = NO_SLOT;
    this.#length += this.#appended;
    this.#appended = 0;
    if (this.#isCheckpoint) this.#keep();
  }

  restorable(length: number): number {
    if (length >= this.#length + this.#appended) return this.#length + this.#appended;
    if (length >= this.#length) return this.#length;
    if (this.#held && length >= this.#held.length) return this.#held.length;
    return this.#checkpoints.findLast((checkpoint) => checkpoint.length <= length)?.length ?? 0;
  }

  restore(length: number): void {
    if (this.slots.to !== NO_SLOT) {
      this.pool.release(this.slots.to);
      this.slots.to = NO_SLOT;
      this.#appended = 0;
    }
    this.#holds = false;
    const held = this.#held;
    if (length === this.#length || length !== held?.length) this.#drop();
    if (length === this.#length) return;
    while ((this.#checkpoints.at(-1)?.length ?? 0) > length) {
      this.pool.release(this.#checkpoints.pop()!.slot);
    }
    if (this.slots.from !== NO_SLOT) this.pool.release(this.slots.from);
    this.#length = length;
    if (this.#held) {
      this.slots.from = this.#held.slot;
      this.#held = undefined;
      return;
    }
    const slot = length === 0 ? NO_SLOT : this.#checkpoints.at(-1)!.slot;
    if (slot !== NO_SLOT) this.pool.share(slot);
    this.slots.from = slot;
  }

  hold(): void {
    this.#holds = true;
  }

  letGo(): void {
    this.#holds = false;
    this.#drop();
  }

  #drop(): void {
    const { slot = NO_SLOT } = this.#held ?? {};
    if (slot !== NO_SLOT) this.pool.release(slot);
    this.#held = undefined;
  }

  fork(): RecurrentSlots {
    const copy = new RecurrentSlots(this.pool, this.#distance);
    const { from } = this.slots;
    if (from !== NO_SLOT) this.pool.share(from);
    for (const { slot } of this.#checkpoints) this.pool.share(slot);
    copy.slots.from = from;
    copy.#length = this.#length;
    copy.#checkpoints = [...this.#checkpoints];
    return copy;
  }

  unitAt(length: number): number | undefined {
    if (length === 0) return undefined;
    if (length === this.#length) return this.slots.from;
    return this.#checkpoints.find((checkpoint) => checkpoint.length === length)?.slot;
  }

  unitsFor(length: number): number[] {
    return length === 0 ? [] : [length];
  }

  extendNeeds(length: number): number {
    return length > this.#length ? 1 : 0;
  }

  extend(length: number): ReadonlyMap<number, number> {
    if (length <= this.#length)
      throw new Error(`recurrent state was extended from ${this.#length} to ${length}`);
    if (this.slots.from !== NO_SLOT) this.pool.release(this.slots.from);
    const slot = this.pool.take();
    this.slots.from = slot;
    this.#length = length;
    this.#keep();
    return new Map([[length, slot]]);
  }

  release(): void {
    this.restore(0);
  }

  #keep(): void {
    const { from } = this.slots;
    this.pool.share(from);
    this.#checkpoints.push({ length: this.#length, slot: from });
    if (this.#checkpoints.length <= MOST_CHECKPOINTS) return;
    this.pool.release(this.#checkpoints.shift()!.slot);
  }

  /** The next length that gets a checkpoint, if the known tokens reach up to `end`. */
  #next(end: number): number {
    const { tokens } = this.#distance;
    const periodic = (Math.floor(this.#length / tokens) + 1) * tokens;
    const last = Math.floor((end - 1) / KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS;
    return last > this.#length ? Math.min(periodic, last) : periodic;
  }
}
