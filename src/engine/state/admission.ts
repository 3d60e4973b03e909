// Admission control: a generation may start when everything it may need of every pool, its answer included, is not
// reserved by others. A generation that does not fit waits, first come first served; so no running generation ever
// finds a pool empty.

import { AbortedError } from "../../base/errors.ts";

/** An amount for each pool: cache blocks, slots. */
export type Amounts = readonly number[];

interface Applicant {
  readonly wanted: Amounts;
  readonly isAborted: () => boolean;
  readonly admit: () => void;
  readonly refuse: (error: unknown) => void;
}

export class Admission {
  #limits: Amounts;
  #promised: Amounts;
  #running = 0;
  #queue: Applicant[] = [];

  /** `limits`: the size of each pool. */
  constructor(limits: Amounts) {
    this.#limits = limits;
    this.#promised = limits.map(() => 0);
  }

  /** What running generations have reserved. */
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

  /** Resolves when `amounts` are reserved; leave() gives them back. Amounts above the limit are reduced to it. */
  enter(amounts: Amounts, isAborted: () => boolean): Promise<Amounts> {
    const wanted = amounts.map((amount, pool) => Math.min(amount, this.#limits[pool]!));
    const { promise, resolve, reject } = Promise.withResolvers<Amounts>();
    this.#queue.push({ wanted, isAborted, admit: () => resolve(wanted), refuse: reject });
    this.#letIn();
    return promise;
  }

  leave(amounts: Amounts): void {
    this.#promised = this.#promised.map((promised, pool) => promised - amounts[pool]!);
    this.#running--;
    this.#letIn();
  }

  /** A waiting generation may have been aborted: those behind it may start. */
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
      if (!isFirst && !isWithin(promised, this.#limits)) return;
      this.#queue.shift();
      this.#promised = promised;
      this.#running++;
      first.admit();
    }
  }
}

export function isWithin(amounts: Amounts, limits: Amounts): boolean {
  return amounts.every((amount, pool) => amount <= limits[pool]!);
}
