// Admission control: a generation may start when all that it may need of every pool, its answer included, is unreserved. A
// generation that does not fit waits, first come first served; so no running generation ever finds a pool empty. Background
// generations wait behind all others, and are asked to give their room to the others, the newest first.

import { AbortedError } from "../../base/errors.ts";
import type { BackgroundPlace } from "../background.ts";

/** An amount for each pool: cache blocks, slots. */
export type Amounts = readonly number[];

interface Applicant {
  readonly wanted: Amounts;
  readonly isAborted: () => boolean;
  readonly place: BackgroundPlace | undefined;
  readonly admit: () => void;
  readonly refuse: (error: unknown) => void;
}

export class Admission {
  #limits: Amounts;
  #promised: Amounts;
  #running = 0;
  /** Foreground first. */
  #queue: Applicant[] = [];
  /** Running background generations in the order of their start, by their reservations. */
  readonly #background = new Map<Amounts, BackgroundPlace>();

  /** `limits`: the size of each pool. */
  constructor(limits: Amounts) {
    this.#limits = limits;
    this.#promised = limits.map(() => 0);
  }

  /** The reservations of running generations. */
  get promised(): Amounts {
    return this.#promised;
  }

  /** Lowers the limits when pools turn out smaller than planned. */
  limit(limits: Amounts): void {
    this.#limits = limits;
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#queue.length;
  }

  get foregroundWaiting(): number {
    return this.#queue.filter(({ place }) => !place).length;
  }

  /**
   * Resolves when `amounts` are reserved; leave() with the result gives them back. Amounts above the limit are reduced to it.
   * `place`: a background generation's, which may be asked to yield.
   */
  enter(amounts: Amounts, isAborted: () => boolean, place?: BackgroundPlace): Promise<Amounts> {
    const wanted = amounts.map((amount, pool) => Math.min(amount, this.#limits[pool]!));
    const { promise, resolve, reject } = Promise.withResolvers<Amounts>();
    const applicant = { wanted, isAborted, place, admit: () => resolve(wanted), refuse: reject };
    const behind = place ? -1 : this.#queue.findIndex((other) => other.place);
    this.#queue.splice(behind < 0 ? this.#queue.length : behind, 0, applicant);
    this.#letIn();
    return promise;
  }

  leave(amounts: Amounts): void {
    this.#background.delete(amounts);
    this.#promised = this.#promised.map((promised, pool) => promised - amounts[pool]!);
    this.#running--;
    this.#letIn();
  }

  /** A waiting generation may have been aborted: later ones may start. */
  check(): void {
    this.#letIn();
  }

  #letIn(): void {
    this.#queue = this.#queue.filter((applicant) => {
      if (!applicant.isAborted()) return true;
      applicant.refuse(new AbortedError("waiting for space in the KV cache"));
      return false;
    });
    while (this.#queue.length > 0) {
      const [first] = this.#queue as [Applicant];
      const promised = this.#promised.map((amount, pool) => amount + first.wanted[pool]!);
      // A generation that needs more than the limit by now is admitted alone, and fails with an error.
      const isFirst = this.#promised.every((amount) => amount === 0);
      if (!isFirst && !isWithin(promised, this.#limits)) {
        if (!first.place) this.#askToYield(promised);
        return;
      }
      this.#queue.shift();
      if (first.place) this.#background.set(first.wanted, first.place);
      this.#promised = promised;
      this.#running++;
      first.admit();
    }
  }

  /** Asks as many background generations for their room as are needed to bring `promised` within the limits. */
  #askToYield(promised: Amounts): void {
    let left = promised;
    for (const [amounts, place] of [...this.#background].reverse()) {
      if (isWithin(left, this.#limits)) return;
      if (!place.mayYield) continue;
      place.mustYield = true;
      left = left.map((amount, pool) => amount - amounts[pool]!);
    }
  }
}

export function isWithin(amounts: Amounts, limits: Amounts): boolean {
  return amounts.every((amount, pool) => amount <= limits[pool]!);
}
