// The slots of a matrix of experts in shared memory, and the choice of a slot for another expert. The caller holds the lock
// (demand-slots.ts).

import { type DemandWeight, demandWords } from "./demand.ts";

/** Slots that experts of a prompt share one after the other, at most half of all: some are read while others are used. */
const TURN_SLOTS = 8;

/** The state of a weight. Numbers of slots and experts are stored plus 1, so that 0 is none. */
export interface WeightState {
  readonly of: DemandWeight;
  /** The slot of each expert. */
  readonly slotOf: Int32Array;
  /** Row panels of each expert that the batch has yet to compute. */
  readonly need: Int32Array;
  /** Experts that the batch found in no slot, in the order in which they will be used; those before the cursor were asked for. */
  readonly list: Int32Array;
  readonly cursor: Int32Array;
  /** Of each slot: its expert, pieces of it that are yet to be read, threads that use it, and when that was last. */
  readonly held: Int32Array;
  readonly left: Int32Array;
  readonly users: Int32Array;
  /** 1: its expert was read ahead, and not used yet. */
  readonly guessed: Int32Array;
  /** After those of the slots: when the batch began. */
  readonly uses: Float64Array;
}

/** For a batch that uses more experts than there are slots: makes room for TURN_SLOTS of the missing ones at a time, by dropping those
 * that it uses last. Otherwise missing ones would be read one by one, each when it is due. */
export function makeTurns(
  { of, slotOf, need, list, held, left, users }: WeightState,
  used: number,
): void {
  let free = 0;
  for (let slot = 0; slot < of.slots; slot++) {
    if (held[slot] === 0 || need[held[slot]! - 1] === 0) free++;
  }
  const missing = used - (of.slots - free);
  if (missing <= free) return;
  const wanted = Math.min(TURN_SLOTS, Math.ceil(of.slots / 2), missing);
  for (let i = used - 1; i >= 0 && free < wanted; i--) {
    const slot = slotOf[list[i]!]! - 1;
    if (slot < 0 || users[slot]! > 0 || Atomics.load(left, slot) > 0) continue;
    slotOf[list[i]!] = 0;
    held[slot] = 0;
    free++;
  }
}

/** A slot for another expert: one that the batch does not need; else, if `isDue`, the one that it needs last; -1: none. */
export function freeSlot(
  { of, need, held, left, users, uses }: WeightState,
  isDue: boolean,
): number {
  const began = uses[of.slots]!;
  let [old, done, later] = [-1, -1, -1];
  for (let slot = 0; slot < of.slots; slot++) {
    if (users[slot]! > 0 || Atomics.load(left, slot) > 0) continue;
    const expert = held[slot]! - 1;
    if (expert < 0) return slot;
    const at = uses[slot]!;
    if (need[expert]! > 0) {
      if (isDue && (later < 0 || at > uses[later]!)) later = slot;
    } else if (at < began) {
      if (old < 0 || at < uses[old]!) old = slot;
    } else if (done < 0 || at > uses[done]!) done = slot;
  }
  if (old >= 0) return old;
  return done >= 0 ? done : later;
}

/** A slot for a guess: empty, or of the expert that was not used for longest, if the last batch did not use it; -1: none. */
export function oldSlot({ of, held, left, users, uses }: WeightState): number {
  const began = uses[of.slots]!;
  let old = -1;
  for (let slot = 0; slot < of.slots; slot++) {
    if (users[slot]! > 0 || Atomics.load(left, slot) > 0) continue;
    if (held[slot] === 0) return slot;
    if (uses[slot]! < began && (old < 0 || uses[slot]! < uses[old]!)) old = slot;
  }
  return old;
}

export function stateOf(of: DemandWeight, i32: Int32Array, buffer: ArrayBufferLike): WeightState {
  const { slotOf, need, list, cursor, held, left, users, guessed } = demandWords(of);
  const words = (from: number, count: number) => {
    const first = of.words / 4 + from;
    return i32.subarray(first, first + count);
  };
  return {
    of,
    slotOf: words(slotOf, of.experts),
    need: words(need, of.experts),
    list: words(list, of.experts),
    cursor: words(cursor, 2),
    held: words(held, of.slots),
    left: words(left, of.slots),
    users: words(users, of.slots),
    guessed: words(guessed, of.slots),
    uses: new Float64Array(buffer, of.uses, of.slots + 1),
  };
}
