// Counts the work on a grammar. All work with a cost that a stranger can choose asks here first, so that a grammar that is too
// expensive is refused before its work is done, at any speed of the machine. A step is about a microsecond.
//
// Masks are computed in slices: when a slice is used up, work stops with a PausedError and begins again in the next slice. Results
// so far (states, transitions, walks) are kept, so that it continues where it stopped.

import { GrammarBudgetError } from "./errors.ts";

/** A slice is used up. Not an error of the grammar: the caller that set the slice gives another. */
export class PausedError extends Error {
  override readonly name = "PausedError";
  /** Whether at most half of the slice passed before a new result: repeating the started work was cheap. */
  readonly gotFurther: boolean;

  constructor(gotFurther: boolean) {
    super();
    this.gotFurther = gotFurther;
  }
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
  #begun = 0;
  /** Steps of the slice before something was found that need not be found again. */
  #again = Number.POSITIVE_INFINITY;
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

  /** Sets the budget from now on; `slice`: the steps before work is paused. */
  begin({ steps, bytes }: Budget, slice: number = Number.POSITIVE_INFINITY): void {
    this.#steps = this.#spent + steps;
    this.#bytes = this.#taken + bytes;
    this.#slice = this.#spent + slice;
    this.#begun = this.#spent;
    this.#again = Number.POSITIVE_INFINITY;
  }

  /** Something was found that need not be found again after a pause. */
  keep(): void {
    this.#again = Math.min(this.#again, this.#spent - this.#begun);
  }

  /** Call before work of this many steps. Work that begins in a slice is done in it, at any length: else it would never be done. */
  spend(steps: number): void {
    if (this.isPaused) throw new PausedError(this.#again <= (this.#slice - this.#begun) / 2);
    this.note(steps);
  }

  /** Whether no more work should begin: for work that can stop where it is without loss. */
  get isPaused(): boolean {
    return this.#spent >= this.#slice;
  }

  /** For work of a size that is known only when it is done, or that would have to be done again: it is not paused. */
  note(steps: number): void {
    if (this.#spent + steps > this.#steps) throw this.#tooMuch("work");
    this.#spent += steps;
  }

  /** Call before memory of this many bytes that is kept. */
  take(bytes: number): void {
    if (this.#taken + bytes > this.#bytes) throw this.#tooMuch("memory");
    this.#taken += bytes;
    this.keep();
  }

  #tooMuch(what: string): GrammarBudgetError {
    const at = typeof this.at === "function" ? this.at() : this.at;
    const rule = at === "" ? "it" : `its rule ${at}`;
    return new GrammarBudgetError(
      `grammar: ${rule} takes too much ${what}. Use shorter repetitions, fewer alternatives that begin alike, or simpler patterns`,
    );
  }
}
