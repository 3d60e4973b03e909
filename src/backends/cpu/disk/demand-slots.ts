// Which experts are in the slots of a matrix (demand.ts), in shared memory: a cache from which what was not used for longest is
// dropped first. Threads that compute use an expert between acquire() and release(); readers take pieces that are to be read.
//
// A batch that uses more experts than there are slots (a prompt) would drop every expert just before it is used again. So, of
// the experts that a batch is done with, the one that it used last is dropped first: most stay for the next batch, and the others
// take turns in a few slots.
//
// Nobody waits for a slot while using another, and what is being read gets done by itself: one slot is enough for progress.
// Nothing is allocated after the constructor.

import { ChunkUnavailable } from "../executor.ts";
import type { ArenaViews } from "../memory/arena.ts";
import type { ExpertGroups } from "../ops/expert-groups.ts";
import {
  DEMAND_NUMBER,
  DEMAND_WORD,
  type DemandProgram,
  type DemandWeight,
  demandWords,
} from "./demand.ts";
import { MOST_WAIT_MS, SLEEP_MS, WORD } from "./program.ts";

/** Slots in which experts of a prompt take turns, at most half of all: some are read while others are used. */
const TURN_SLOTS = 8;
/** How often a thread polls the lock, which others have for a microsecond, before it sleeps. */
const LOCK_SPINS = 200;
const pause: () => void = (Atomics as { pause?: () => void }).pause ?? (() => {});

/** The state of a weight. Numbers of slots and experts are stored plus 1, so that 0 is none. */
interface WeightState {
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
  /** After those of the slots: when the batch began. */
  readonly uses: Float64Array;
}

/** A piece that a reader has taken. */
export interface DemandPiece {
  weight: number;
  slot: number;
  expert: number;
  piece: number;
}

export class DemandSlots {
  readonly #program: DemandProgram;
  readonly #states: readonly WeightState[];
  readonly #words: Int32Array;
  readonly #queue: Int32Array;
  readonly #numbers: Float64Array;
  /** The words of the readers (program.ts). */
  readonly #readers: Int32Array;
  readonly #piece: DemandPiece = { weight: 0, slot: 0, expert: 0, piece: 0 };
  #hasAsked = false;

  constructor(program: DemandProgram, { i32, buffer }: Pick<ArenaViews, "i32" | "buffer">) {
    const { control, queue, queueLength, numbers, readers } = program;
    this.#program = program;
    this.#states = program.weights.map((weight) => stateOf(weight, i32, buffer));
    this.#words = i32.subarray(control / 4, control / 4 + DEMAND_WORD.count);
    this.#queue = i32.subarray(queue / 4, queue / 4 + 2 * queueLength);
    this.#numbers = new Float64Array(buffer, numbers, DEMAND_NUMBER.count);
    this.#readers = i32.subarray(readers / 4, readers / 4 + WORD.count);
  }

  /** Begins a batch that uses these groups, for one weight: asks for as many missing experts as there is room for. */
  begin(weight: number, groups: ExpertGroups, threads: number): void {
    if (Atomics.load(this.#readers, WORD.failed) !== 0) throw new ChunkUnavailable();
    const state = this.#states[weight]!;
    const { of, slotOf, need, list, cursor, uses } = state;
    const count = groups.count();
    this.#lock();
    need.fill(0);
    for (let group = 0; group < count; group++) need[groups.expert(group)]! += of.panels;
    const now = this.#tick();
    uses[of.slots] = now;
    let used = 0;
    // Each thread begins with its own part of the groups.
    const longest = Math.ceil(count / threads);
    for (let step = 0; step < longest; step++) {
      for (let thread = 0; thread < threads; thread++) {
        const group = Math.floor((count * thread) / threads) + step;
        if (group >= Math.floor((count * (thread + 1)) / threads)) continue;
        const expert = groups.expert(group);
        if (group === 0 || groups.expert(group - 1) !== expert) list[used++] = expert;
      }
    }
    makeTurns(state, used);
    let missing = 0;
    for (let i = 0; i < used; i++) {
      const expert = list[i]!;
      const slot = slotOf[expert]! - 1;
      if (slot < 0) list[missing++] = expert;
      else uses[slot] = now;
    }
    this.#numbers[DEMAND_NUMBER.hits]! += used - missing;
    cursor[0] = 0;
    cursor[1] = missing;
    this.#refill(weight);
    this.#unlock();
  }

  /** The slot of an expert, once it is there; it stays until release(). */
  acquire(weight: number, expert: number): number {
    const { slotOf, users, left } = this.#states[weight]!;
    const readers = this.#readers;
    for (;;) {
      const seen = Atomics.load(readers, WORD.loaded);
      this.#lock();
      let slot = slotOf[expert]! - 1;
      if (slot < 0) slot = this.#ask(weight, expert, true);
      if (slot >= 0) users[slot]!++;
      else this.#words[DEMAND_WORD.starved] = 1;
      this.#unlock();
      if (slot >= 0) {
        if (Atomics.load(left, slot) > 0) this.#wait(weight, slot);
        return slot;
      }
      Atomics.wait(readers, WORD.loaded, seen, SLEEP_MS);
    }
  }

  /** So many row panels of the expert in a slot were computed. */
  release(weight: number, slot: number, panels: number): void {
    const { held, need, users, uses } = this.#states[weight]!;
    const expert = held[slot]! - 1;
    this.#lock();
    users[slot]!--;
    need[expert]! -= panels;
    if (need[expert] === 0) {
      uses[slot] = this.#tick();
      this.#refill(weight);
    }
    const isStarved = this.#words[DEMAND_WORD.starved] !== 0;
    this.#words[DEMAND_WORD.starved] = 0;
    this.#unlock();
    if (isStarved) this.#tell(WORD.loaded);
  }

  /** For a reader: the next piece to read; undefined: none. The object is the same every time. */
  take(): DemandPiece | undefined {
    const { queueLength, weights } = this.#program;
    const words = this.#words;
    const made = this.#piece;
    this.#lock();
    const head = words[DEMAND_WORD.head]!;
    const isEmpty = head === words[DEMAND_WORD.tail];
    if (!isEmpty) {
      made.weight = this.#queue[2 * head]!;
      const piece = this.#queue[2 * head + 1]!;
      const { pieces } = weights[made.weight]!;
      made.slot = Math.floor(piece / pieces);
      made.piece = piece % pieces;
      made.expert = this.#states[made.weight]!.held[made.slot]! - 1;
      words[DEMAND_WORD.head] = (head + 1) % queueLength;
    }
    this.#unlock();
    return isEmpty ? undefined : made;
  }

  /** For a reader: a piece is there. */
  put({ weight, slot }: DemandPiece, bytes: number): void {
    const { left } = this.#states[weight]!;
    this.#lock();
    this.#numbers[DEMAND_NUMBER.bytes]! += bytes;
    this.#unlock();
    if (Atomics.sub(left, slot, 1) === 1) this.#tell(WORD.loaded);
  }

  /** For the leader, when nobody computes or reads: forgets what was to be read, and who used what. */
  reset(): void {
    this.#words.fill(0);
    for (const { slotOf, held, left, users } of this.#states) {
      users.fill(0);
      for (let slot = 0; slot < held.length; slot++) {
        if (left[slot] === 0) continue;
        left[slot] = 0;
        slotOf[held[slot]! - 1] = 0;
        held[slot] = 0;
      }
    }
  }

  /** What was found, read and waited for so far. */
  get counts(): { hits: number; misses: number; readBytes: number; waitMs: number } {
    const { hits, misses, bytes, waitMs } = DEMAND_NUMBER;
    const at = (number: number) => this.#numbers[number]!;
    return { hits: at(hits), misses: at(misses), readBytes: at(bytes), waitMs: at(waitMs) };
  }

  /** Waits until a slot's expert was read. */
  #wait(weight: number, slot: number): void {
    const { left, users } = this.#states[weight]!;
    const readers = this.#readers;
    const start = performance.now();
    let seen = Atomics.load(readers, WORD.loaded);
    for (let since = start; Atomics.load(left, slot) > 0; ) {
      const isFailed = Atomics.load(readers, WORD.failed) !== 0;
      const isLate = performance.now() - since > MOST_WAIT_MS;
      if (isFailed || isLate) {
        this.#lock();
        users[slot]!--;
        this.#unlock();
        if (isLate) throw new Error("the disk does not answer");
        throw new ChunkUnavailable();
      }
      if (Atomics.wait(readers, WORD.loaded, seen, SLEEP_MS) !== "timed-out") {
        since = performance.now();
      }
      seen = Atomics.load(readers, WORD.loaded);
    }
    this.#lock();
    this.#numbers[DEMAND_NUMBER.waitMs]! += performance.now() - start;
    this.#unlock();
  }

  /** Asks for missing experts of the batch while there are slots that it does not need. */
  #refill(weight: number): void {
    const { list, cursor, slotOf, need } = this.#states[weight]!;
    for (; cursor[0]! < cursor[1]!; cursor[0]!++) {
      const expert = list[cursor[0]!]!;
      // A thread has asked for it, or is done with it already.
      if (slotOf[expert] !== 0 || need[expert] === 0) continue;
      if (this.#ask(weight, expert, false) < 0) return;
    }
  }

  /** Gives an expert a slot, and lets it be read; -1: there is none now. `isDue`: also one that the batch needs later. */
  #ask(weight: number, expert: number, isDue: boolean): number {
    const state = this.#states[weight]!;
    const { of, slotOf, held, left, uses } = state;
    const slot = freeSlot(state, isDue);
    if (slot < 0) return -1;
    const before = held[slot]!;
    if (before > 0) slotOf[before - 1] = 0;
    held[slot] = expert + 1;
    slotOf[expert] = slot + 1;
    uses[slot] = this.#tick();
    Atomics.store(left, slot, of.pieces);
    const words = this.#words;
    for (let piece = 0; piece < of.pieces; piece++) {
      const tail = words[DEMAND_WORD.tail]!;
      this.#queue[2 * tail] = weight;
      this.#queue[2 * tail + 1] = slot * of.pieces + piece;
      words[DEMAND_WORD.tail] = (tail + 1) % this.#program.queueLength;
    }
    this.#numbers[DEMAND_NUMBER.misses]!++;
    this.#hasAsked = true;
    return slot;
  }

  #tick(): number {
    return ++this.#numbers[DEMAND_NUMBER.clock]!;
  }

  #tell(word: number): void {
    Atomics.add(this.#readers, word, 1);
    Atomics.notify(this.#readers, word);
  }

  #lock(): void {
    const words = this.#words;
    for (let i = 0; Atomics.compareExchange(words, DEMAND_WORD.lock, 0, 1) !== 0; i++) {
      if (i < LOCK_SPINS) pause();
      else Atomics.wait(words, DEMAND_WORD.lock, 1, 1); // its owner was suspended
    }
  }

  #unlock(): void {
    Atomics.store(this.#words, DEMAND_WORD.lock, 0);
    if (!this.#hasAsked) return;
    this.#hasAsked = false;
    this.#tell(WORD.work);
  }
}

/** Where a batch uses more experts than there are slots: makes room for TURN_SLOTS of the missing ones at a time, in place of those
 * that it uses last. Otherwise they would be read one by one, each when it is due. */
function makeTurns({ of, slotOf, need, list, held, left, users }: WeightState, used: number): void {
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
function freeSlot({ of, need, held, left, users, uses }: WeightState, isDue: boolean): number {
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

function stateOf(of: DemandWeight, i32: Int32Array, buffer: ArrayBufferLike): WeightState {
  const { slotOf, need, list, cursor, held, left, users } = demandWords(of);
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
    uses: new Float64Array(buffer, of.uses, of.slots + 1),
  };
}
