// Assigns experts to the slots of a matrix (demand.ts), in shared memory: an LRU cache. Threads that compute use an expert
// between acquire() and release(); readers take pieces that are to be read.
//
// A batch that uses more experts than there are slots (a prompt) would drop every expert just before it is used again. So, of
// the experts that a batch is done with, the last one is dropped first: most stay for the next batch, and the others
// share a few slots.
//
// Experts that a layer will probably use are read ahead (expect()), after all that a batch waits for. When the layer's routes are
// known, the batch also waits for those of them that it uses, and others that no reader has begun to read are forgotten.
//
// No thread waits for a slot while using another, and a read that has begun ends by itself: one slot is enough for
// progress.
// Nothing is allocated after the constructor.

import type { ExpertReads } from "../../backend.ts";
import { ChunkUnavailable } from "../executor.ts";
import type { ArenaViews } from "../memory/arena.ts";
import type { ExpertGroups } from "../ops/expert-groups.ts";
import { ReadAhead } from "./ahead.ts";
import { DEMAND_NUMBER, DEMAND_WORD, type DemandProgram } from "./demand.ts";
import { noAnswer, recordFailure } from "./failure.ts";
import { SLEEP_MS, WORD } from "./program.ts";
import { freeSlot, makeTurns, oldSlot, stateOf, type WeightState } from "./slot-choice.ts";

/** The number of times that a thread polls the lock, which others hold for a microsecond, before it sleeps. */
const LOCK_SPINS = 200;
const pause: () => void = (Atomics as { pause?: () => void }).pause ?? (() => {});

/** A piece that a reader has taken. */
export interface DemandPiece {
  weight: number;
  slot: number;
  expert: number;
  piece: number;
}

export class DemandSlots {
  readonly #program: DemandProgram;
  readonly #views: Pick<ArenaViews, "i32" | "u8">;
  readonly #states: readonly WeightState[];
  readonly #words: Int32Array;
  readonly #queue: Int32Array;
  readonly #guesses: Int32Array;
  readonly ahead: ReadAhead;
  readonly #numbers: Float64Array;
  /** The words of the readers (program.ts). */
  readonly #readers: Int32Array;
  readonly #piece: DemandPiece = { weight: 0, slot: 0, expert: 0, piece: 0 };
  #hasAsked = false;

  constructor(program: DemandProgram, views: Pick<ArenaViews, "i32" | "u8" | "buffer">) {
    const { control, queue, queueLength, numbers, readers, guesses, mostGuesses } = program;
    const { i32, buffer } = views;
    this.#program = program;
    this.#views = views;
    this.#states = program.weights.map((weight) => stateOf(weight, i32, buffer));
    this.#words = i32.subarray(control / 4, control / 4 + DEMAND_WORD.count);
    this.#queue = i32.subarray(queue / 4, queue / 4 + 2 * queueLength);
    this.#guesses = i32.subarray(guesses / 4, guesses / 4 + 2 * mostGuesses);
    this.#numbers = new Float64Array(buffer, numbers, DEMAND_NUMBER.count);
    this.ahead = new ReadAhead(program.ahead, this.#numbers);
    this.#readers = i32.subarray(readers.words / 4, readers.words / 4 + WORD.count);
  }

  /** Begins a batch that uses these groups, for one weight: asks for as many missing experts as there is room for. */
  begin(weight: number, groups: ExpertGroups, threads: number): void {
    if (Atomics.load(this.#readers, WORD.failed) !== 0) throw new ChunkUnavailable();
    const state = this.#states[weight]!;
    const { of, slotOf, need, list, cursor, uses, guessed } = state;
    const count = groups.count();
    this.#lock();
    need.fill(0);
    for (let group = 0; group < count; group++) need[groups.expert(group)]! += of.panels;
    const now = this.#tick();
    uses[of.slots] = now;
    this.#settle(weight);
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
      if (slot >= 0 && guessed[slot] === 1) {
        guessed[slot] = 0;
        this.#numbers[DEMAND_NUMBER.right]!++;
      }
    }
    this.#numbers[DEMAND_NUMBER.hits]! += used - missing;
    cursor[0] = 0;
    cursor[1] = missing;
    this.#refill(weight);
    this.#unlock();
  }

  /** Reads experts ahead that the next batch of a weight will probably use; they replace some that its last one did not use. */
  expect(weight: number, experts: ArrayLike<number>): void {
    if (Atomics.load(this.#readers, WORD.failed) !== 0) return;
    const state = this.#states[weight]!;
    const { of, slotOf, uses, guessed } = state;
    const words = this.#words;
    this.#lock();
    for (let i = 0; i < experts.length; i++) {
      const slot = slotOf[experts[i]!]! - 1;
      if (slot >= 0) uses[slot] = this.#tick(); // no guess takes its slot
    }
    for (let i = 0; i < experts.length; i++) {
      const expert = experts[i]!;
      if (slotOf[expert] !== 0) continue;
      if (words[DEMAND_WORD.guesses]! + of.pieces > this.#program.mostGuesses) break;
      const slot = oldSlot(state);
      if (slot < 0) break;
      this.#give(state, slot, expert);
      guessed[slot] = 1;
      for (let piece = 0; piece < of.pieces; piece++) {
        const at = words[DEMAND_WORD.guesses]!++;
        this.#guesses[2 * at] = weight;
        this.#guesses[2 * at + 1] = slot * of.pieces + piece;
      }
      this.#numbers[DEMAND_NUMBER.guessed]!++;
      this.#hasAsked = true;
    }
    this.#unlock();
  }

  /** The slot of an expert, once it is there; it stays until release(). */
  acquire(weight: number, expert: number): number {
    const { slotOf, users, left } = this.#states[weight]!;
    const readers = this.#readers;
    for (;;) {
      const seen = Atomics.load(readers, WORD.loaded);
      // The requested experts are no longer read then, and may have all slots.
      if (Atomics.load(readers, WORD.failed) !== 0) throw new ChunkUnavailable();
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
    const isAsked = head !== words[DEMAND_WORD.tail];
    const isGuessed = !isAsked && words[DEMAND_WORD.guesses]! > 0;
    if (isAsked || isGuessed) {
      const from = isAsked ? this.#queue : this.#guesses;
      const at = isAsked ? head : 0;
      made.weight = from[2 * at]!;
      const piece = from[2 * at + 1]!;
      const { pieces } = weights[made.weight]!;
      made.slot = Math.floor(piece / pieces);
      made.piece = piece % pieces;
      made.expert = this.#states[made.weight]!.held[made.slot]! - 1;
      if (isAsked) words[DEMAND_WORD.head] = (head + 1) % queueLength;
      else this.#dropGuess(0);
    }
    this.#unlock();
    return isAsked || isGuessed ? made : undefined;
  }

  /** For a reader: a piece is there. */
  put({ weight, slot }: DemandPiece, bytes: number): void {
    const { left } = this.#states[weight]!;
    this.#lock();
    this.#numbers[DEMAND_NUMBER.bytes]! += bytes;
    this.#unlock();
    if (Atomics.sub(left, slot, 1) === 1) this.#tell(WORD.loaded);
  }

  /** For the leader, while no thread computes or reads: forgets pending reads, and the users of each slot. */
  reset(): void {
    this.#words.fill(0);
    for (const { slotOf, held, left, users, guessed } of this.#states) {
      users.fill(0);
      guessed.fill(0);
      for (let slot = 0; slot < held.length; slot++) {
        if (left[slot] === 0) continue;
        left[slot] = 0;
        slotOf[held[slot]! - 1] = 0;
        held[slot] = 0;
      }
    }
  }

  /** The hits, reads and waits so far. */
  get counts(): ExpertReads {
    const { hits, misses, bytes, waitMs, guessed, right } = DEMAND_NUMBER;
    const at = (number: number) => this.#numbers[number]!;
    return {
      ...{ hits: at(hits), misses: at(misses), readBytes: at(bytes), waitMs: at(waitMs) },
      ...{ guessed: at(guessed), guessedRight: at(right) },
    };
  }

  #fail(weight: number): void {
    const { readers, waitMs, weights } = this.#program;
    recordFailure(readers, this.#views, noAnswer(weights[weight]!.name, waitMs));
  }

  /** Waits until a slot's expert was read. */
  #wait(weight: number, slot: number): void {
    const { left, users } = this.#states[weight]!;
    const readers = this.#readers;
    const start = performance.now();
    let seen = Atomics.load(readers, WORD.loaded);
    for (let since = start; Atomics.load(left, slot) > 0; ) {
      const isFailed = Atomics.load(readers, WORD.failed) !== 0;
      const isLate = performance.now() - since > this.#program.waitMs;
      if (isFailed || isLate) {
        this.#lock();
        users[slot]!--;
        this.#unlock();
        if (isLate) this.#fail(weight);
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
    const { pieces } = state.of;
    const slot = freeSlot(state, isDue);
    if (slot < 0) return -1;
    this.#give(state, slot, expert);
    for (let piece = 0; piece < pieces; piece++) this.#queuePiece(weight, slot * pieces + piece);
    this.#numbers[DEMAND_NUMBER.misses]!++;
    return slot;
  }

  #give(
    { of, slotOf, held, left, uses, guessed }: WeightState,
    slot: number,
    expert: number,
  ): void {
    const before = held[slot]!;
    if (before > 0) slotOf[before - 1] = 0;
    held[slot] = expert + 1;
    slotOf[expert] = slot + 1;
    uses[slot] = this.#tick();
    guessed[slot] = 0;
    Atomics.store(left, slot, of.pieces);
  }

  #queuePiece(weight: number, piece: number): void {
    const words = this.#words;
    const tail = words[DEMAND_WORD.tail]!;
    this.#queue[2 * tail] = weight;
    this.#queue[2 * tail + 1] = piece;
    words[DEMAND_WORD.tail] = (tail + 1) % this.#program.queueLength;
    this.#hasAsked = true;
  }

  /** When the routes of a weight's batch are known: needed guesses are read now, other guesses are forgotten. */
  #settle(weight: number): void {
    const { of, slotOf, held, left, need, guessed } = this.#states[weight]!;
    const words = this.#words;
    for (let at = 0; at < words[DEMAND_WORD.guesses]!; ) {
      if (this.#guesses[2 * at] !== weight) {
        at++;
        continue;
      }
      const piece = this.#guesses[2 * at + 1]!;
      const slot = Math.floor(piece / of.pieces);
      const expert = held[slot]! - 1;
      // Its pieces are side by side: if this is the first of all, none is being read.
      const isUntouched = piece % of.pieces === 0;
      if (need[expert]! > 0 || !isUntouched) {
        this.#queuePiece(weight, piece);
        this.#dropGuess(at);
        continue;
      }
      for (let i = 0; i < of.pieces; i++) this.#dropGuess(at);
      Atomics.store(left, slot, 0);
      slotOf[expert] = 0;
      held[slot] = 0;
      guessed[slot] = 0;
      this.#numbers[DEMAND_NUMBER.guessed]!--;
    }
  }

  /** Takes a piece out of the guesses. */
  #dropGuess(at: number): void {
    const count = --this.#words[DEMAND_WORD.guesses]!;
    this.#guesses.copyWithin(2 * at, 2 * at + 2, 2 * count + 2);
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
