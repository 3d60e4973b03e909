// Later growth of the memory for ended sequences: it happens while no generation waits. A GPU takes 14 ms for each GB of a larger KV cache
// and computes nothing meanwhile; evicting the oldest of these sequences is free at that moment. So growth begins when no generation has run
// for a moment and pauses while one does. On a machine that is never idle it continues after all, a piece at a time: there, most sequences
// are worth more than the pauses.

import { DisposedError } from "../../base/errors.ts";

/** Growth begins after this long without a running generation: the user is reading, and has not answered yet. */
const REST_MS = 100;
/** The interval in which a pause checks whether it is over; on a busy machine, the time between two pieces. */
const LOOK_MS = 20;
/** The longest total delay. */
const MOST_MS = 10_000;

export interface LaterGrowthParts {
  /** The number of generations that have begun so far. */
  begun(): number;
  /** The number of running generations. */
  running(): number;
  /** Whether a generation needs memory now, and waits for this growth to end. */
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
  #wake: () => void = () => undefined;

  constructor(parts: LaterGrowthParts) {
    this.#parts = parts;
    this.#wait = parts.wait ?? timer;
  }

  /** Grows later, unless that is under way. An error is not reported: the generation that needs the memory will see it. */
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
    this.#wake();
  }

  dispose(): void {
    this.#isDisposed = true;
    this.#wake();
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
      this.#wake = resolve;
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
