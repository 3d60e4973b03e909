// Who may begin: a generation is let in when what it may come to need of every pool, answer included, is not promised to
// others. Whoever does not fit yet waits, in the order of coming; so no running generation ever finds a pool empty.

import { AbortedError } from "../../base/errors.ts";

/** Of each pool: cache blocks, slots. */
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

  /** `limits`: how many there are. */
  constructor(limits: Amounts) {
    this.#limits = limits;
    this.#promised = limits.map(() => 0);
  }

  /** What running generations may come to need. */
  get promised(): Amounts {
    return this.#promised;
  }

  /** There are only so many, after all. */
  limit(limits: Amounts): void {
    this.#limits = limits;
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#queue.length;
  }

  /** Resolves when `amounts` are promised; leave() gives them back. More than there are: all of them. */
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

  /** Somebody gave up: whoever waits behind may go on. */
  check(): void {
    this.#letIn();
  }

  #letIn(): void {
    this.#queue = this.#queue.filter((applicant) => {
      if (!applicant.isAborted()) return true;
      applicant.refuse(new AbortedError("waiting for room in the KV cache"));
      return false;
    });
    while (this.#queue.length > 0) {
      const [first] = this.#queue as [Applicant];
      const promised = this.#promised.map((amount, pool) => amount + first.wanted[pool]!);
      // Whoever wants more than there is by now is let in alone, and told.
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
