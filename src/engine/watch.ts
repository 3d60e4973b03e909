// Whether a thread still lives: looks every second, while something is asked of it, for a sign of life, and says so when
// there has been none for long. A thread that hangs does not die: without this, whoever asked would wait for ever.
//
// Signs of life are messages (it answers a ping between two pieces of its work) and a counter in shared memory, which it
// advances in the middle of them: between two ops of a batch, between two words of a text. A batch that takes minutes on a
// slow machine therefore is no hang. Without shared memory there are only messages, and more patience.
//
// Seconds are counted, not measured: a process that was stopped for an hour, or a machine that slept, has not hung.

/** No sign of life for this long: it hangs. */
export const HANG_SECONDS = 60;
/** Without shared memory a whole batch may pass without a sign. */
const PATIENCE_WITHOUT_COUNTER = 10;
/** Looks in the time after which it hangs. */
const LOOKS = 60;
/** A thread that starts gives no sign until its code is loaded. It has at least this long. */
const START_SECONDS = 60;

export interface WatchOptions {
  /** Seconds without a sign of life after which it hangs; 0: never. */
  seconds: number;
  /** Its counter; undefined: there is none. */
  beats: (() => number) | undefined;
  /** Asks it for a message. */
  ping(): void;
  onHang(seconds: number): void;
}

export class Watch {
  readonly #options: WatchOptions;
  readonly #seconds: number;
  #timer: ReturnType<typeof setInterval> | undefined;
  /** Messages from it. */
  #heard = 0;
  #lastSign = -1;
  #quiet = 0;
  #isAsked = false;

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#seconds = options.seconds * (options.beats ? 1 : PATIENCE_WITHOUT_COUNTER);
  }

  /** A number that changes with every sign of life. */
  get signs(): number {
    return this.#heard + (this.#options.beats?.() ?? 0);
  }

  /** A message came: it lives. */
  hear(): void {
    this.#heard++;
    this.#isAsked = false;
  }

  /** Something is asked of it. */
  start(): void {
    if (this.#timer !== undefined || this.#seconds === 0) return;
    this.#quiet = 0;
    this.#isAsked = false;
    this.#timer = setInterval(() => this.#look(), (this.#seconds * 1000) / LOOKS);
    (this.#timer as { unref?(): void }).unref?.(); // the thread keeps the process alive, not this
  }

  /** Nothing is asked of it any more. */
  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #look(): void {
    const { signs } = this;
    this.#quiet = signs === this.#lastSign ? this.#quiet + 1 : 0;
    this.#lastSign = signs;
    const patience = signs > 0 ? 1 : Math.max(1, START_SECONDS / this.#seconds);
    if (this.#quiet >= LOOKS * patience) {
      this.stop();
      this.#options.onHang(this.#seconds);
      return;
    }
    if (!this.#isAsked) this.#options.ping();
    this.#isAsked = true;
  }
}
