// Who may begin: a generation is let in when the blocks that it may come to need, answer included, are not promised to
// others. Whoever does not fit yet waits, in the order of coming; so no running generation ever finds the cache full.

import { AbortedError } from "../base/errors.ts";

interface Applicant {
  readonly blocks: number;
  readonly isAborted: () => boolean;
  readonly admit: () => void;
  readonly refuse: (error: unknown) => void;
}

export class Admission {
  #blocks: number;
  #promised = 0;
  #running = 0;
  #queue: Applicant[] = [];

  /** `blocks`: how many there are. */
  constructor(blocks: number) {
    this.#blocks = blocks;
  }

  /** Blocks that running generations may come to need. */
  get promised(): number {
    return this.#promised;
  }

  /** There are only so many, after all. */
  limit(blocks: number): void {
    this.#blocks = blocks;
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#queue.length;
  }

  /** Resolves when `blocks` are promised; leave() gives them back. More than there are: all of them. */
  enter(blocks: number, isAborted: () => boolean): Promise<number> {
    const wanted = Math.min(blocks, this.#blocks);
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    this.#queue.push({ blocks: wanted, isAborted, admit: () => resolve(wanted), refuse: reject });
    this.#letIn();
    return promise;
  }

  leave(blocks: number): void {
    this.#promised -= blocks;
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
      // Whoever wants more than there is by now is let in alone, and told.
      if (this.#promised > 0 && this.#promised + first.blocks > this.#blocks) return;
      this.#queue.shift();
      this.#promised += first.blocks;
      this.#running++;
      first.admit();
    }
  }
}
