// A sequence: its tokens, and its states in the backend. It knows no kind of state.
//
//   append() -> the batch is computed -> commit()
//                                     -> it failed: restore(the length before)

import { ContextError } from "../../base/errors.ts";
import { type BatchSequence, KV_BLOCK_TOKENS, type SlotPair } from "../../graph/batch.ts";
import { NOBODY, type Owner } from "../tiers/owners.ts";
import { type AdapterUse, NO_ADAPTERS } from "./adapter-use.ts";
import type { SequenceState } from "./sequence-state.ts";

export class Sequence implements BatchSequence {
  readonly states: readonly SequenceState[];
  /** The table that backends read: see BatchSequence. */
  readonly blocks: Int32Array;
  readonly groups: readonly Int32Array[];
  readonly slots: SlotPair | undefined;
  /** Keys of its whole blocks, as far as they were asked for (../tiers/keys.ts). */
  keys: string[] = [];
  /** The number of first tokens with exactly computed state: later ones depend on tokens that were moved (move-tokens.ts). */
  exactTokens: number = Infinity;
  /** Loaded from a file that another backend computed: it is rounded differently, so no copies of it are kept by content. */
  isForeign = false;
  /** Whose text it is: see own(). */
  #owner: Owner = NOBODY;
  /** The adapters it is computed with. */
  readonly adapters: AdapterUse;
  #starts: Int32Array | undefined;
  readonly #tokens: Int32Array;
  #length = 0;
  #isReleased = false;
  /** Whether it can only go back to before a batch (hold()), not by single tokens. */
  readonly goesBackByBatches: boolean;

  constructor(
    states: readonly SequenceState[],
    maxTokens: number,
    adapters: AdapterUse = NO_ADAPTERS,
  ) {
    this.states = states;
    this.adapters = adapters;
    this.#starts = adapters.starts;
    this.goesBackByBatches = states.some(({ hold }) => hold !== undefined);
    this.groups = states.flatMap(({ table }) => table ?? []);
    this.blocks = this.groups[0] ?? new Int32Array();
    this.slots = states.find(({ slots }) => slots)?.slots;
    this.#tokens = new Int32Array(maxTokens);
  }

  get owner(): Owner {
    return this.#owner;
  }

  /**
   * The sequence continues as this owner's. State that others have stored is now this owner's as well, so all of it is looked at
   * again.
   */
  own(owner: Owner): void {
    if (owner !== this.#owner) this.keys = [];
    this.#owner = owner;
  }

  get scales(): Float32Array | undefined {
    return this.adapters.scales;
  }

  get starts(): Int32Array | undefined {
    return this.#starts;
  }

  /** `count` tokens after the first `keep` were dropped: adapters that begin behind them begin earlier. */
  moveStarts(keep: number, count: number): void {
    this.#starts &&= this.#starts.map((at) => (at <= keep ? at : Math.max(keep, at - count)));
  }

  /** Tokens that were computed or are being computed. */
  get length(): number {
    return this.#length;
  }

  get capacity(): number {
    return this.#tokens.length;
  }

  /** Whether its state equals the state of computing its tokens. */
  get isExact(): boolean {
    return this.exactTokens >= this.#length;
  }

  token(position: number): number {
    return this.#tokens[position]!;
  }

  /** The number of tokens of `tokens` that this sequence starts with. */
  commonPrefix(tokens: readonly number[]): number {
    const most = Math.min(this.#length, tokens.length);
    let same = 0;
    while (same < most && this.#tokens[same] === tokens[same]) same++;
    return same;
  }

  /** Whether all tokens of the other are a prefix of this one, computed with the same adapters. */
  startsWith(other: Sequence): boolean {
    if (other.#length > this.#length || other.adapters.key !== this.adapters.key) return false;
    for (let i = 0; i < other.#length; i++) if (this.#tokens[i] !== other.#tokens[i]) return false;
    return true;
  }

  /** The number of `count` more tokens that one batch may compute, if `left` are known: see SequenceState. */
  batchTokens(count: number, left: number): number {
    let most = count;
    for (const state of this.states) most = state.batchTokens(most, this.#length + left);
    return most;
  }

  /**
   * Makes room for `count` tokens of tokens[from...], of which `known` are part of the text (default: all), and returns the
   * position of the first. The pools must have the units that the states need.
   */
  append(
    tokens: ArrayLike<number>,
    from = 0,
    count: number = tokens.length - from,
    known: number = tokens.length - from,
  ): number {
    if (this.#isReleased) throw new Error("a sequence was used after its release");
    const first = this.#length;
    if (first + count > this.capacity) {
      throw new ContextError(`the context is full: it holds ${this.capacity} tokens`);
    }
    const end = first + known;
    for (const state of this.states) state.append(count, end);
    for (let i = 0; i < count; i++) this.#tokens[first + i] = tokens[from + i]!;
    this.#length += count;
    return first;
  }

  /** The number of further tokens its states have room for, without taking units from the pools or copying. */
  get aheadTokens(): number {
    let most = Infinity;
    for (const { aheadTokens = 0 } of this.states) most = Math.min(most, aheadTokens);
    return this.states.length > 0 ? most : 0;
  }

  /** Call when the appended tokens were computed. */
  commit(): void {
    for (const state of this.states) state.commit();
  }

  /** Before a batch with drafted tokens: it may go back to the present length until letGo(), restore() or the batch after it. */
  hold(): void {
    for (const state of this.states) state.hold?.();
  }

  letGo(): void {
    for (const state of this.states) state.letGo?.();
  }

  /** The largest length up to `length` that all of its states can go back to. */
  restorable(length: number): number {
    let agreed = Math.min(length, this.#length);
    for (let before = -1; agreed !== before; ) {
      before = agreed;
      for (const state of this.states) agreed = state.restorable(agreed);
    }
    return agreed;
  }

  /** Forgets everything after the first `length` tokens: a restorable length, or the one before an append(). */
  restore(length: number): void {
    if (length < 0 || this.restorable(length) !== length) {
      throw new Error(`a sequence of ${this.#length} tokens cannot go back to ${length}`);
    }
    for (const state of this.states) state.restore(length);
    this.#length = length;
    this.keys.length = Math.min(this.keys.length, Math.floor(length / KV_BLOCK_TOKENS));
    if (length <= this.exactTokens) {
      this.exactTokens = Infinity;
      this.#starts = this.adapters.starts;
    }
    if (length === 0) this.isForeign = false;
  }

  /** The tokens from `from` to `to`, to be read at once. */
  tokens(from: number, to: number): Int32Array {
    return this.#tokens.subarray(from, to);
  }

  /**
   * Goes forward to the first `length` of these tokens without computing them. Returns the units to fill for each state, by length:
   * see SequenceState.extend(). Its own tokens must be a prefix of these.
   */
  extend(tokens: ArrayLike<number>, length: number): ReadonlyMap<number, number>[] {
    if (this.#isReleased) throw new Error("a sequence was used after its release");
    const taken = this.states.map((state) => state.extend(length));
    for (let i = this.#length; i < length; i++) this.#tokens[i] = tokens[i]!;
    this.#length = length;
    return taken;
  }

  /**
   * A second sequence with the same past; no data is copied until one of them writes. With other adapters it must be restored to a
   * length up to which they agree with its own (sharedTokens()).
   */
  fork(adapters: AdapterUse = this.adapters): Sequence {
    if (this.#isReleased) throw new Error("a sequence was used after its release");
    const copy = new Sequence(
      this.states.map((state) => state.fork()),
      this.capacity,
      adapters,
    );
    copy.#tokens.set(this.#tokens.subarray(0, this.#length));
    copy.#length = this.#length;
    if (adapters.key === this.adapters.key) {
      copy.keys = [...this.keys];
      copy.#starts = this.#starts;
    }
    copy.#owner = this.#owner;
    copy.exactTokens = this.exactTokens;
    copy.isForeign = this.isForeign;
    return copy;
  }

  /** Gives everything back; the sequence must not be used after that. */
  release(): void {
    if (this.#isReleased) return;
    for (const state of this.states) state.release();
    this.#length = 0;
    this.#isReleased = true;
  }
}
