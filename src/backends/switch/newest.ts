// Tells which of two backends has the newest contents of each cache block and each slot of recurrent state. Only blocks and slots
// that the next batch reads and the side that runs it lacks are copied.
//
// A block is written by one side at a time: tokens are appended to it after the side has its earlier rows, so that the
// rows before them are right on that side, and the other side's copy of the block is old from then on.

import {
  type Batch,
  type BatchSequence,
  KV_BLOCK_TOKENS,
  NO_SLOT,
  tableOf,
} from "../../graph/batch.ts";

/** 0: the host, 1: the device. */
export type Side = 0 | 1;

export interface NewestOptions {
  /** Blocks of each group of KV states. */
  readonly blocks: readonly number[];
  /** Of each group: tokens that attention looks back, its own included; Infinity: all. */
  readonly windows: readonly number[];
  readonly slots: number;
}

/** Asks for contents that a side lacks: a block of a group, or a slot. */
export interface Missing {
  block(group: number, block: number): void;
  slot(slot: number): void;
}

export class Newest {
  /** Bit 1 << side, by group and block: that side has it. */
  readonly #blocks: readonly Uint8Array[];
  readonly #slots: Uint8Array;
  readonly #windows: readonly number[];

  constructor({ blocks, windows, slots }: NewestOptions) {
    this.#blocks = blocks.map((count) => new Uint8Array(count));
    this.#slots = new Uint8Array(slots);
    this.#windows = windows;
  }

  /** Names everything that the batch reads and `side` has not got; says from then on that it has. */
  bring(batch: Batch, side: Side, missing: Missing): void {
    const bit = 1 << side;
    for (let t = 0; t < batch.tokenCount; t = lastOf(batch, t) + 1) {
      const sequence = batch.sequences[t]!;
      const position = batch.positions[t]!; // of its first token here
      for (let group = 0; group < this.#blocks.length; group++) {
        const held = this.#blocks[group]!;
        const table = tableOf(sequence, group);
        const first = Math.max(0, position + 1 - this.#windows[group]!);
        const end = Math.ceil(position / KV_BLOCK_TOKENS);
        for (let i = Math.floor(first / KV_BLOCK_TOKENS); i < end; i++) {
          const block = table[i]!;
          if (held[block]! & bit) continue;
          missing.block(group, block);
          held[block]! |= bit;
        }
      }
      this.#bringSlot(sequence, bit, missing);
    }
  }

  #bringSlot({ slots }: BatchSequence, bit: number, missing: Missing): void {
    if (!slots || slots.from === NO_SLOT || this.#slots[slots.from]! & bit) return;
    missing.slot(slots.from);
    this.#slots[slots.from]! |= bit;
  }

  /** From now on, the rows that the batch writes are only on `side`. */
  written(batch: Batch, side: Side): void {
    const bit = 1 << side;
    for (let t = 0; t < batch.tokenCount; ) {
      const sequence = batch.sequences[t]!;
      const last = lastOf(batch, t);
      const from = Math.floor(batch.positions[t]! / KV_BLOCK_TOKENS);
      const to = Math.floor(batch.positions[last]! / KV_BLOCK_TOKENS);
      for (let group = 0; group < this.#blocks.length; group++) {
        const table = tableOf(sequence, group);
        for (let i = from; i <= to; i++) this.#blocks[group]![table[i]!] = bit;
      }
      if (sequence.slots) this.#slots[sequence.slots.to] = bit;
      t = last + 1;
    }
  }

  /** Whether a side has the newest contents of a block. */
  hasBlock(group: number, block: number, side: Side): boolean {
    return (this.#blocks[group]![block]! & (1 << side)) !== 0;
  }

  hasSlot(slot: number, side: Side): boolean {
    return (this.#slots[slot]! & (1 << side)) !== 0;
  }

  /** A block was filled from outside: only this side has it. */
  filledBlock(group: number, block: number, side: Side): void {
    this.#blocks[group]![block] = 1 << side;
  }

  filledSlot(slot: number, side: Side): void {
    this.#slots[slot] = 1 << side;
  }

  /** A block was copied on both sides: old contents stay old. */
  copied(group: number, from: number, to: number): void {
    this.#blocks[group]![to] = this.#blocks[group]![from]!;
  }
}

/** The last token of token t's sequence. */
export function lastOf(batch: Batch, t: number): number {
  let last = t;
  while (last + 1 < batch.tokenCount && batch.sequences[last + 1] === batch.sequences[t]) last++;
  return last;
}
