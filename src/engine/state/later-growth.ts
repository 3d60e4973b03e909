// Memory for sequences that have ended grows later: while nobody waits. A GPU takes 14 ms for each GB of a larger KV cache, and whoever
// computes meanwhile is kept from it; giving up the oldest of these sequences costs nobody anything now. So it begins when no
// generation has run for a moment, pauses while one does, and on a machine that never rests goes on after all, a piece at a time: there, most
// sequences are worth more than the pauses.

import { DisposedError } from "../../base/errors.ts";

/** No generation has run for so long: nobody answers what they have just read. */
const REST_MS = 100;
/** How often a pause looks whether it is over; on a busy machine, the time between two pieces. */
const LOOK_MS = 20;
/** How long it is put off all together. */
const MOST_MS = 10_000;

export interface LaterGrowthParts {
  /** How many generations have begun so far. */
  begun(): number;
  /** How many run. */
  running(): number;
  /** Whether somebody needs memory now, and waits for this growth to end. */
  isUrgent(): boolean;
  grow(pause: () => Promise<void>): Promise<void>;
  /** Default: a timer, which keeps no thread alive. */
  wait?: ((ms: number) => Promise<void>) | undefined;
}

export class LaterGrowth {
  readonly #parts: LaterGrowthParts;
  readonly #wait: (ms: number) => Promise<void>;
  #isUnderWay = false;
  #isDisposed = false;
  /** Ends a pause. */
  #goOn: () => void = () => undefined;

  constructor(parts: LaterGrowthParts) {
    this.#parts = parts;
    this.#wait = parts.wait ?? timer;
  }

  /** Grows later, unless that is under way. An error is not reported: somebody who needs the memory will see it. */
  begin(): void {
    if (this.#isUnderWay) return;
    this.#isUnderWay = true;
    void this.#run()
      .catch(() => undefined)
      .finally(() => {
        this.#isUnderWay = false;
      });
  }

  /** isUrgent() has changed: a pause ends. */
  hurry(): void {
    this.#goOn();
  }

  dispose(): void {
    this.#isDisposed = true;
    this.#goOn();
  }

  async #run(): Promise<void> {
    const { begun, running, isUrgent, grow } = this.#parts;
    let left = MOST_MS;
    const checkAlive = (): void => {
      if (this.#isDisposed) throw new DisposedError("the state of sequences");
    };
    const wait = async (ms: number): Promise<void> => {
      left -= ms;
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#goOn = resolve;
      await Promise.race([this.#wait(ms), promise]);
      checkAlive();
    };
    while (left > 0) {
      const before = begun();
      await wait(REST_MS);
      if (running() === 0 && begun() === before) break;
    }
    await grow(async () => {
      checkAlive();
      const isDisturbing = () => running() > 0 && !isUrgent();
      if (isDisturbing()) await wait(LOOK_MS);
      while (left > 0 && isDisturbing()) await wait(LOOK_MS);
    });
  }
}

function timer(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const made = setTimeout(resolve, ms);
    (made as { unref?(): void }).unref?.();
  });
}
