// The threads of the CPU backend, which run one program together. An instruction is over when all its chunks are done, not
// when all threads have arrived at a barrier. So a thread that the operating system suspends delays the others by the chunk
// it has taken, at most. (Engines with a full barrier between ops become several times slower when another program keeps
// one of the cores busy.)
//
// The chunks of an instruction are divided evenly beforehand: each thread first takes those of its own run, and then steals
// from the runs of others. Each run has a word that counts its taken chunks, in a cache line of its own, which mostly only
// its owner writes: a single word would move from core to core with every chunk.
//
// Shared i32 words, from program.control on:
//   ready     number of the open instruction, which counts up from batch to batch. Number n is instruction
//             (n mod (count + 1)) - 1; -1 means: nothing to do until the leader begins the next batch
//   sleepers  number of threads that sleep instead of spinning
//   failed    a thread's chunk threw
//   stopped   the team is over
//   skip      the batch is aborted: its remaining chunks are counted, but not computed
//   drowsy    idle threads sleep at once instead of spinning first
//   rests     the same, but only between two batches
//   done      in a cache line of its own: finished chunks of the open instruction
//   then, for each thread: the low half of an instruction's number, and the number of taken chunks of the thread's run. With
//   the number of an earlier instruction, none is. A chunk is taken by a compare-exchange with a value that was read while
//   the instruction was open: once it is over, all of its runs have changed, and the exchange fails.

import { ChunkUnavailable, type Executor } from "../executor.ts";

const READY = 0;
const SLEEPERS = 1;
const FAILED = 2;
const STOPPED = 3;
const SKIP = 4;
const DROWSY = 5;
const RESTS = 6;
const LINE = 16;
const DONE = LINE;
const RUNS: number = 2 * LINE;

/**
 * The number of polls of `ready` before a thread sleeps: up to half a millisecond. Waking a thread takes longer than most
 * instructions, and sampling a token between two batches takes less time than that. After useless spinning (a thread is
 * suspended because others want its core) it polls a quarter as often the next time, since a scheduler penalises threads
 * that spin.
 */
const MOST_SPINS = 10_000;
const FEWEST_SPINS = 200;
/** Growth of the number of polls after useful spinning. */
const SPIN_GROWTH = 1.05;
/** A sleeper polls again after this long even if nothing woke it. */
const SLEEP_MS = 100;
/** Numbers restart long before they would overflow. */
const RENUMBER = 2 ** 30;
/** Tells the processor that a thread spins, so that a hyperthread on the same core gets more of it. Some 50 ns. */
const pause: () => void = (Atomics as { pause?: () => void }).pause ?? (() => {});

/** The outcome of the leader's part of a batch; "waits": other threads have unfinished chunks, see resume(). */
export type BatchEnd = "done" | "given up" | "waits";

/** Behaviour of an idle thread. */
export type Idle = "spin" | "sleep";

export function controlWords(threads: number): number {
  return RUNS + LINE * threads;
}

/** A thread's number in a team, and the team's control words. */
export interface TeamPlace {
  readonly buffer: ArrayBufferLike;
  /** The address of the control words, at a cache line. */
  readonly control: number;
  /** Number 0 is the leader. */
  readonly thread: number;
  readonly threads: number;
}

export class TeamMember {
  readonly #words: Int32Array;
  readonly #executors: readonly Executor[];
  readonly #thread: number;
  readonly #threads: number;
  readonly #canSleep: boolean;
  #spins = MOST_SPINS;
  /** For the leader: the number at which the batch is over. */
  #end = 0;
  /** For the leader: the error of its own chunk. */
  #cause: unknown;

  constructor(place: TeamPlace, executors: readonly Executor[]) {
    const { buffer, control, thread, threads } = place;
    this.#words = new Int32Array(buffer, control, controlWords(threads));
    this.#executors = executors;
    this.#thread = thread;
    this.#threads = threads;
    this.#canSleep =
      typeof SharedArrayBuffer !== "undefined" && buffer instanceof SharedArrayBuffer;
  }

  get #isLeader(): boolean {
    return this.#thread === 0;
  }

  /**
   * For the leader: runs all instructions once, with the helpers. "given up" when `stop` returned true; throws when a chunk
   * failed on any thread. "waits" when it has waited for others' chunks for a while, so that its thread can process events
   * before it continues with resume(). `meanwhile` runs when the helpers have begun. A program with pauses runs until the next one;
   * `isResumed` continues behind it.
   */
  runBatch(stop?: () => boolean, meanwhile?: () => void, isResumed = false): BatchEnd {
    if (isResumed) this.#publish(Atomics.load(this.#words, READY) + 1);
    else this.begin();
    meanwhile?.();
    return this.resume(stop);
  }

  /** For the leader: opens the first instruction; the helpers work on it before the leader does, with resume(). */
  begin(): void {
    let idle = Atomics.load(this.#words, READY);
    if (this.indexOf(idle) >= 0) idle = this.#end; // a batch that ended at a pause: no thread computes
    if (idle > RENUMBER) {
      idle = 0; // a multiple of count + 1: "nothing to do"
      Atomics.store(this.#words, READY, idle);
    }
    // The low halves of numbers repeat after 65536 instructions; a run that was not touched for so long must not look taken.
    const none = (idle & 0xffff) << 16;
    for (let i = 0; i < this.#threads; i++) Atomics.store(this.#words, RUNS + LINE * i, none);
    this.#publish(idle + 1);
    this.#end = (idle + this.#executors.length + 1) | 0;
  }

  /** For the leader: continues a batch that was begun, or "waits". */
  resume(stop?: () => boolean): BatchEnd {
    for (let now = Atomics.load(this.#words, READY); now !== this.#end; ) {
      if (this.#pausesAt(now)) break;
      if (stop?.()) Atomics.store(this.#words, SKIP, 1);
      this.#work(now);
      const seen = this.waitPast(now, true);
      if (seen === now) return "waits";
      now = seen;
    }
    if (Atomics.load(this.#words, FAILED) !== 0) {
      Atomics.store(this.#words, FAILED, 0);
      const cause = this.#cause;
      this.#cause = undefined;
      throw new Error("a compute thread failed in the middle of a batch", { cause });
    }
    return Atomics.exchange(this.#words, SKIP, 0) === 0 ? "done" : "given up";
  }

  /** The main loop of a helper. */
  serve(): void {
    let seen = Atomics.load(this.#words, READY);
    while (Atomics.load(this.#words, STOPPED) === 0) {
      this.#work(seen);
      seen = this.waitPast(seen, false);
    }
  }

  /** Restores the initial state; only when no helper is running. */
  reset(): void {
    const drowsy = this.#words[DROWSY]!;
    this.#words.fill(0);
    this.#words[DROWSY] = drowsy;
  }

  /** Whether idle threads spin for a while before they sleep, from now on. */
  setIdle(idle: Idle): void {
    Atomics.store(this.#words, DROWSY, idle === "sleep" ? 1 : 0);
  }

  /** Whether threads sleep at once after a batch, from now on: another team has the cores next. */
  setRest(isOn: boolean): void {
    Atomics.store(this.#words, RESTS, isOn ? 1 : 0);
  }

  /** Ends the helpers' main loops. */
  stop(): void {
    Atomics.store(this.#words, STOPPED, 1);
    Atomics.add(this.#words, READY, 1);
    Atomics.notify(this.#words, READY);
  }

  /** Works on instruction number `now` until no chunk is left; the thread that finishes the last chunk opens the next. */
  #work(now: number): void {
    const index = this.indexOf(now);
    if (index < 0) return;
    const executor = this.#executors[index]!;
    if (executor.leaderOnly && !this.#isLeader) return;
    const taken = this.takeChunks(now, executor);
    if (taken === 0) return;
    // Read before the chunks are counted: afterwards the instruction may be over, and the next batch may have other counts.
    const chunks = executor.chunks();
    if (Atomics.add(this.#words, DONE, taken) + taken === chunks) this.#publish(now + 1);
  }

  /** Takes chunks until none is left. Returns their number. */
  protected takeChunks(now: number, executor: Executor): number {
    const threads = this.#threads;
    const chunks = executor.chunks();
    let taken = 0;
    for (let i = 0; i < threads; i++) {
      const sum = this.#thread + i;
      const owner = sum < threads ? sum : sum - threads;
      const from = Math.ceil((chunks * owner) / threads);
      const count = Math.ceil((chunks * (owner + 1)) / threads) - from;
      if (count > 0) taken += this.#takeFrom(now, owner, from, count, executor);
    }
    return taken;
  }

  /** Takes chunks of one thread's run: `count` of them, from number `from` on. */
  #takeFrom(now: number, owner: number, from: number, count: number, executor: Executor): number {
    const words = this.#words;
    const word = RUNS + LINE * owner;
    const tag = (now & 0xffff) << 16;
    for (let taken = 0; ; ) {
      const seen = Atomics.load(words, word);
      const position = (seen & 0xffff_0000) === tag ? seen & 0xffff : 0;
      if (position >= count || Atomics.load(words, READY) !== now) return taken;
      if (Atomics.compareExchange(words, word, seen, tag | (position + 1)) !== seen) continue;
      taken++;
      this.#run(executor, from + position);
    }
  }

  /** Runs the only chunk of an instruction. */
  protected workAlone(index: number): void {
    this.#run(this.#executors[index]!, 0);
  }

  #run(executor: Executor, chunk: number): void {
    try {
      if (Atomics.load(this.#words, SKIP) === 0) executor.run(chunk);
    } catch (error) {
      Atomics.store(this.#words, FAILED, 1);
      if (!this.#isLeader) return;
      this.#cause ??= error;
      if (!(error instanceof ChunkUnavailable)) console.error(error);
    }
  }

  /**
   * Opens instruction number `start`, or the first after it with more than one chunk: single chunks are run right here, which
   * takes less time than waking others.
   */
  #publish(start: number): void {
    const words = this.#words;
    let number = start | 0;
    for (let index = this.indexOf(number); index >= 0; index = this.indexOf(number)) {
      const executor = this.#executors[index]!;
      if (executor.pauses) break;
      const chunks = executor.chunks();
      if (chunks > 1 || (chunks === 1 && executor.leaderOnly && !this.#isLeader)) break;
      if (chunks === 1) this.workAlone(index);
      number = (number + 1) | 0;
    }
    Atomics.store(words, DONE, 0);
    Atomics.store(words, READY, number);
    if (Atomics.load(words, SLEEPERS) > 0) Atomics.notify(words, READY);
  }

  /** Returns the number of the open instruction once it is no longer `now`; the leader gets `now` after one sleep. */
  protected waitPast(now: number, isLeader: boolean): number {
    const words = this.#words;
    const spins = this.#sleepsAt(now) ? 1 : this.#spins;
    for (let i = 0; i < spins; i++) {
      const seen = Atomics.load(words, READY);
      if (seen !== now) {
        this.#spins = Math.min(MOST_SPINS, this.#spins * SPIN_GROWTH);
        return seen;
      }
      pause();
    }
    // A thread without a reason to spin has not spun uselessly.
    if (spins > 1) this.#spins = Math.max(FEWEST_SPINS, this.#spins / 4);
    for (let slept = 0; ; slept++) {
      const seen = Atomics.load(words, READY);
      if (seen !== now) return seen;
      if (!this.#canSleep) continue;
      if (isLeader ? slept > 0 : Atomics.load(words, STOPPED) !== 0) return seen;
      Atomics.add(words, SLEEPERS, 1);
      Atomics.wait(words, READY, now, SLEEP_MS);
      Atomics.sub(words, SLEEPERS, 1);
    }
  }

  /** Whether a thread sleeps at once while this instruction is open. */
  #sleepsAt(now: number): boolean {
    if (Atomics.load(this.#words, DROWSY) !== 0) return true;
    return Atomics.load(this.#words, RESTS) !== 0 && this.indexOf(now) < 0;
  }

  #pausesAt(now: number): boolean {
    return this.#executors[this.indexOf(now)]?.pauses === true;
  }

  /** The number of the open instruction, which changes as the batch runs. */
  get ready(): number {
    return Atomics.load(this.#words, READY);
  }

  /** The instruction with this number; -1: none, the team is between two batches. */
  protected indexOf(number: number): number {
    return ((number >>> 0) % (this.#executors.length + 1)) - 1;
  }
}
