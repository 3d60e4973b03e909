// The threads of the CPU backend at work on one program, in step but not in lockstep: an instruction is over when all
// its chunks are done, not when all threads have arrived. A thread that the operating system holds back therefore delays
// the others by the chunk it holds, at most; one that holds none delays nobody. (Engines with a barrier between ops
// become several times slower when another program keeps one of the cores busy.)
//
// Shared i32 words, from program.control on:
//   ready     number of the instruction that can be worked on; counts up from step to step. Number n is instruction
//             (n mod (count + 1)) - 1; 0 means: nothing to do until the leader begins the next step
//   sleepers  threads that wait instead of spinning
//   failed    a thread's chunk threw
//   stopped   the team is over
//   skip      the step was given up: what is left of it is counted, but not computed
//   drowsy    threads with nothing to do sleep at once instead of spinning first
//   then, for each instruction: next (low half of its number, next chunk) and done (chunks finished)

import type { Executor } from "./executors.ts";

const READY = 0;
const SLEEPERS = 1;
const FAILED = 2;
const STOPPED = 3;
const SKIP = 4;
const DROWSY = 5;
const FIRST = 16;

/** Looks at `ready` this often before it sleeps: some ten microseconds. */
const SPINS = 2000;
/** A sleeper looks again after this long even if nobody woke it. */
const SLEEP_MS = 100;
/** Numbers begin again long before they would overflow. */
const RENUMBER = 2 ** 30;
/** No progress for this long: a thread was lost. */
const LOST_MS = 20_000;

/** What a thread with nothing to do does. */
export type Idle = "spin" | "sleep";

export function controlWords(instructions: number): number {
  return FIRST + 2 * (instructions + 1);
}

export class TeamMember {
  readonly #words: Int32Array;
  readonly #executors: readonly Executor[];
  readonly #isLeader: boolean;
  readonly #canSleep: boolean;
  readonly #lostMs: number;

  constructor(
    buffer: ArrayBufferLike,
    control: number,
    executors: readonly Executor[],
    isLeader: boolean,
    lostMs: number = LOST_MS,
  ) {
    this.#lostMs = lostMs;
    this.#words = new Int32Array(buffer, control, controlWords(executors.length));
    this.#executors = executors;
    this.#isLeader = isLeader;
    this.#canSleep =
      typeof SharedArrayBuffer !== "undefined" && buffer instanceof SharedArrayBuffer;
  }

  /**
   * The leader's: runs all instructions once, with whoever helps. False when `stop` said to give up on the way; throws
   * when a chunk failed anywhere.
   */
  runStep(stop?: () => boolean): boolean {
    let idle = Atomics.load(this.#words, READY);
    if (idle > RENUMBER) {
      idle = 0; // also a multiple of count + 1: "nothing to do"
      Atomics.store(this.#words, READY, idle);
    }
    this.#publish(idle + 1);
    const end = (idle + this.#executors.length + 1) | 0;
    for (let now = Atomics.load(this.#words, READY); now !== end; ) {
      if (stop?.()) Atomics.store(this.#words, SKIP, 1);
      this.work(now);
      now = this.waitPast(now, true);
    }
    if (Atomics.load(this.#words, FAILED) !== 0) {
      Atomics.store(this.#words, FAILED, 0);
      throw new Error("a compute thread failed in the middle of a step");
    }
    return Atomics.exchange(this.#words, SKIP, 0) === 0;
  }

  /** A helper's whole life. */
  serve(): void {
    let seen = Atomics.load(this.#words, READY);
    while (Atomics.load(this.#words, STOPPED) === 0) {
      this.work(seen);
      seen = this.waitPast(seen, false);
    }
  }

  /** As in the beginning: when no helper is left that could be in the middle of something. */
  reset(): void {
    const drowsy = this.#words[DROWSY]!;
    this.#words.fill(0);
    this.#words[DROWSY] = drowsy;
  }

  /** Whether threads that have nothing to do look again for a while before they sleep, from now on. */
  setIdle(idle: Idle): void {
    Atomics.store(this.#words, DROWSY, idle === "sleep" ? 1 : 0);
  }

  /** Lets the helpers go. */
  stop(): void {
    Atomics.store(this.#words, STOPPED, 1);
    Atomics.add(this.#words, READY, 1);
    Atomics.notify(this.#words, READY);
  }

  /**
   * Takes chunks of instruction number `now` until none is left; whoever finishes the last one opens the next. Returns
   * how many it took.
   */
  protected work(now: number): number {
    const index = this.indexOf(now);
    if (index < 0) return 0;
    const executor = this.#executors[index]!;
    if (executor.leaderOnly && !this.#isLeader) return 0;
    const words = this.#words;
    const [next, done] = [FIRST + 2 * index, FIRST + 2 * index + 1];
    const tag = now & 0xffff;
    const chunks = executor.chunks();
    for (let taken = 0; ; ) {
      const seen = Atomics.load(words, next);
      const chunk = seen & 0xffff;
      if (seen >>> 16 !== tag || chunk >= chunks) return taken;
      if (Atomics.compareExchange(words, next, seen, seen + 1) !== seen) continue;
      taken++;
      try {
        if (Atomics.load(words, SKIP) === 0) executor.run(chunk);
      } catch (error) {
        Atomics.store(words, FAILED, 1);
        if (this.#isLeader) console.error(error);
      }
      if (Atomics.add(words, done, 1) + 1 < chunks) continue;
      // A thread that was held back since before this instruction must not find chunks in it when the next step, with
      // more tokens, has more of them.
      Atomics.store(words, next, seen | 0xffff);
      this.#publish(now + 1);
    }
  }

  /** Opens instruction number `start`, or the first after it that has any work. */
  #publish(start: number): void {
    const words = this.#words;
    let number = start | 0;
    for (let index = this.indexOf(number); index >= 0; index = this.indexOf(number)) {
      if (this.#executors[index]!.chunks() > 0) {
        Atomics.store(words, FIRST + 2 * index + 1, 0);
        Atomics.store(words, FIRST + 2 * index, (number & 0xffff) << 16);
        break;
      }
      number = (number + 1) | 0;
    }
    Atomics.store(words, READY, number);
    if (Atomics.load(words, SLEEPERS) > 0) Atomics.notify(words, READY);
  }

  /** Returns the number of the open instruction once it is no longer `now`. */
  protected waitPast(now: number, expectsProgress: boolean): number {
    const words = this.#words;
    const spins = Atomics.load(words, DROWSY) === 0 ? SPINS : 1;
    for (let i = 0; i < spins; i++) {
      const seen = Atomics.load(words, READY);
      if (seen !== now) return seen;
    }
    for (let waited = 0; ; waited += SLEEP_MS) {
      const seen = Atomics.load(words, READY);
      if (seen !== now) return seen;
      if (!this.#canSleep) continue;
      if (expectsProgress && waited >= this.#lostMs) {
        throw new Error(`a compute thread was lost: no progress for ${this.#lostMs / 1000} s`);
      }
      if (!expectsProgress && Atomics.load(words, STOPPED) !== 0) return seen;
      Atomics.add(words, SLEEPERS, 1);
      Atomics.wait(words, READY, now, SLEEP_MS);
      Atomics.sub(words, SLEEPERS, 1);
    }
  }

  /** The number of the open instruction. */
  protected get ready(): number {
    return Atomics.load(this.#words, READY);
  }

  /** Which instruction has this number; -1: none, the team is between two steps. */
  protected indexOf(number: number): number {
    return ((number >>> 0) % (this.#executors.length + 1)) - 1;
  }
}
