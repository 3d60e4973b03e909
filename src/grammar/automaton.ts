// The table of a lazily built automaton over bytes: state 0 matches no text, transitions are computed when first needed.

import type { ByteSets } from "./regex/byte-sets.ts";
import { hasByte } from "./regex/byte-sets.ts";

/** The rule may end here. */
export const FINAL = 1;
/** The rule must end here. */
export const ENDS = 4;
/** Other rules may begin here. */
export const CALLS = 2;

const UNKNOWN = -1;

export abstract class Automaton {
  /** [states, 256]: the next state, 0 for none, -1 where it was not computed yet. */
  table: Int32Array = new Int32Array(64 * 256).fill(UNKNOWN);
  /** [states]: FINAL, CALLS. */
  flags: Uint8Array = new Uint8Array(64);
  #states = 0;
  readonly #alike = new Uint32Array(8);
  readonly #byteSets: ByteSets;

  protected constructor(byteSets: ByteSets) {
    this.#byteSets = byteSets;
    this.addState(0);
    this.table.fill(0, 0, 256);
  }

  /** Memory of the tables. */
  get tableBytes(): number {
    return this.table.byteLength + this.flags.byteLength;
  }

  get states(): number {
    return this.#states;
  }

  protected addState(flags: number): number {
    const state = this.#states++;
    if (state === this.flags.length) {
      const table = new Int32Array(this.table.length * 2); // many megabytes: each is written once
      table.set(this.table);
      table.fill(UNKNOWN, this.table.length);
      this.table = table;
      const wider = new Uint8Array(this.flags.length * 2);
      wider.set(this.flags);
      this.flags = wider;
    }
    this.flags[state] = flags;
    return state;
  }

  next(state: number, byte: number): number {
    const known = this.table[(state << 8) | byte]!;
    return known === UNKNOWN ? this.#compute(state, byte) : known;
  }

  /** The state after `byte`. */
  protected abstract follow(state: number, byte: number): number;

  /** Byte sets such that bytes in the same ones of them have the same next state. */
  protected abstract fronts(state: number): Iterable<number>;

  /** Computes the transition for a byte, and with it that of every byte that cannot be told apart from it. */
  #compute(state: number, byte: number): number {
    const alike = this.#alike.fill(0xffffffff);
    let any = false;
    for (const id of this.fronts(state)) {
      const set = this.#byteSets.get(id);
      const has = hasByte(set, byte);
      any ||= has;
      for (let i = 0; i < 8; i++) alike[i]! &= has ? set[i]! : ~set[i]!;
    }
    const next = any ? this.follow(state, byte) : 0;
    const row = state << 8;
    for (let other = 0; other < 256; other++)
      if (hasByte(alike, other)) this.table[row | other] = next;
    return next;
  }
}
