// Counts the work on a grammar. Everything whose cost a stranger can choose asks here first, so that a grammar that is too dear is
// refused before its work is done, whatever the machine's speed. A step is about a microsecond.
//
// Masks are computed in slices: where a slice is used up, work stops with a PausedError and begins again in the next slice. What was
// found until then (states, transitions, walks) is kept, so that it goes on where it stopped.

import { GrammarBudgetError } from "./errors.ts";

/** A slice is used up. Not an error of the grammar: whoever set the slice gives another. */
export class PausedError extends Error {
  override readonly name = "PausedError";
}

export interface Budget {
  readonly steps: number;
  /** Memory that may be added. */
  readonly bytes: number;
}

export class Meter {
  #steps = Number.POSITIVE_INFINITY;
  #bytes = Number.POSITIVE_INFINITY;
  #slice = Number.POSITIVE_INFINITY;
  #spent = 0;
  #taken = 0;
  /** The rule that is worked on, for the error; a function where saying it takes time. */
  at: string | (() => string) = "";

  /** Steps since the meter was made. */
  get spent(): number {
    return this.#spent;
  }

  /** Bytes since the meter was made. */
  get taken(): number {
    return this.#taken;
  }

  /** From now on so much may be spent; `slice`: so much of it before it is paused. */
  begin({ steps, bytes }: Budget, slice: number = Number.POSITIVE_INFINITY): void {
    this.#steps = this.#spent + steps;
    this.#bytes = this.#taken + bytes;
    this.#slice = this.#spent + slice;
  }

  /** Before work of so many steps. What was begun in a slice is done in it, however long it takes: else it would never be done. */
  spend(steps: number): void {
    if (this.#spent >= this.#slice) throw new PausedError();
    this.note(steps);
  }

  /** For work whose size is known only when it is done, or that would have to be done again: it is not paused. */
  note(steps: number): void {
    if (this.#spent + steps > this.#steps) throw this.#tooMuch("work");
    this.#spent += steps;
  }

  /** Before memory of so many bytes that is kept. */
  take(bytes: number): void {
    if (this.#taken + bytes > this.#bytes) throw this.#tooMuch("memory");
    this.#taken += bytes;
  }

  #tooMuch(what: string): GrammarBudgetError {
    const at = typeof this.at === "function" ? this.at() : this.at;
    const rule = at === "" ? "it" : `its rule ${at}`;
    return new GrammarBudgetError(
      `grammar: ${rule} takes too much ${what}. Use shorter repetitions, fewer alternatives that begin alike, or simpler patterns`,
    );
  }
}
