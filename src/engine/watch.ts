// Detects a hung thread. While a request is pending, it checks for signs of life every second, and reports when there
// have been none for long. A hung thread does not die: without this, its caller would wait forever.
//
// Signs of life are messages (the thread answers a ping between two pieces of work) and a counter in shared memory,
// which it advances during work: between two ops of a batch, between two words of a text. So a batch that takes
// minutes on a slow machine is not a hang. Without shared memory there are only messages, and the timeout is longer.
//
// Checks are counted, not clock time: a process that was stopped for an hour, or a machine that slept, has not hung.

/** Seconds without a sign of life after which a thread counts as hung. */
export const HANG_SECONDS = 60;
/** Factor on the timeout without shared memory, where a whole batch may pass without a sign. */
const PATIENCE_WITHOUT_COUNTER = 10;
/** Checks per timeout. */
const LOOKS = 60;
/** A starting thread gives no sign until its code is loaded. It gets at least this long. */
const START_SECONDS = 60;

export interface WatchOptions {
  /** Seconds without a sign of life after which it counts as hung; 0: never. */
  seconds: number;
  /** The thread's counter; undefined if there is none. */
  beats: (() => number) | undefined;
  /** Asks the thread for a message. */
  ping(): void;
  onHang(seconds: number): void;
}

export class Watch {
  readonly #options: WatchOptions;
  readonly #seconds: number;
  #timer: ReturnType<typeof setInterval> | undefined;
  /** Number of messages from the thread. */
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

  /** Call when a message came. */
  hear(): void {
    this.#heard++;
    this.#isAsked = false;
  }

  /** A request is pending. */
  start(): void {
    if (this.#timer !== undefined || this.#seconds === 0) return;
    this.#quiet = 0;
    this.#isAsked = false;
    this.#timer = setInterval(() => this.#look(), (this.#seconds * 1000) / LOOKS);
    (this.#timer as { unref?(): void }).unref?.(); // the thread keeps the process alive, not this timer
  }

  /** No request is pending any more. */
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
