// The threads of the CPU backend at work on one program, in step but not in lockstep: an instruction is over when all
// its chunks are done, not when all threads have arrived. A thread that the operating system holds back therefore delays
// the others by the chunk it holds, at most; one that holds none delays nobody. (Engines with a barrier between ops
// become several times slower when another program keeps one of the cores busy.)
//
// The chunks of an instruction are dealt out evenly beforehand: each thread has a list of them, takes these first, and then
// what others have left. Chunks are taken from a word of the run's owner, in a cache line of its own, which mostly nobody
// else touches: one word for all would go from core to core with every chunk.
//
// Shared i32 words, from program.control on:
//   ready     number of the instruction that can be worked on; counts up from batch to batch. Number n is instruction
//             (n mod (count + 1)) - 1; 0 means: nothing to do until the leader begins the next batch
//   sleepers  threads that wait instead of spinning
//   failed    a thread's chunk threw
//   stopped   the team is over
//   skip      the batch was given up: what is left of it is counted, but not computed
//   drowsy    threads with nothing to do sleep at once instead of spinning first
//   done      in a line of its own: chunks finished of the instruction that can be worked on
//   then, for each thread: low half of an instruction's number, and how many chunks of the thread's run are taken. If it is
//   the number of an earlier instruction, none is. A chunk is taken from what was seen while the instruction was open: if
//   it is over, all of its runs have changed since, and the exchange fails.

import type { Executor } from "../executor.ts";

const READY = 0;
const SLEEPERS = 1;
const FAILED = 2;
const STOPPED = 3;
const SKIP = 4;
const DROWSY = 5;
const LINE = 16;
const DONE = LINE;
const RUNS: number = 2 * LINE;

/**
 * Looks at `ready` this often before it sleeps: up to half a millisecond. Waking a thread takes longer than most instructions
 * of a batch, and choosing a token between two batches does not take that long. Where that was in vain (a thread is held back,
 * since others want its core) it looks a quarter as often the next time: a system that sees a thread spin lets others go first.
 */
const MOST_SPINS = 10_000;
const FEWEST_SPINS = 200;
/** How much longer it looks after it was not in vain. */
const SPIN_GROWTH = 1.05;
/** A sleeper looks again after this long even if nobody woke it. */
const SLEEP_MS = 100;
/** Numbers begin again long before they would overflow. */
const RENUMBER = 2 ** 30;
/** Tells the processor that a thread spins: one that shares its core gets more of it. Some 50 ns. */
const pause: () => void = (Atomics as { pause?: () => void }).pause ?? (() => {});

/** How the leader's part of a batch ended; "waits": others have chunks that are not done yet, see goOn(). */
export type BatchEnd = "done" | "given up" | "waits";

/** What a thread with nothing to do does. */
export type Idle = "spin" | "sleep";

export function controlWords(threads: number): number {
  return RUNS + LINE * threads;
}

/** A thread's place in a team. */
export interface TeamPlace {
  readonly buffer: ArrayBufferLike;
  /** Where the words of control are; they begin a cache line. */
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
  /** The number at which the leader's batch is over. */
  #end = 0;
  /** The leader's: what its own chunk threw. */
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
   * The leader's: runs all instructions once, with whoever helps. "given up" when `stop` said so on the way; throws when a
   * chunk failed anywhere. "waits" when it has waited for the chunks of others for a while: so that its thread can hear
   * what became of them, before it goes on with goOn().
   */
  runBatch(stop?: () => boolean): BatchEnd {
    let idle = Atomics.load(this.#words, READY);
    if (idle > RENUMBER) {
      idle = 0; // also a multiple of count + 1: "nothing to do"
      Atomics.store(this.#words, READY, idle);
    }
    // Numbers come again after some ten thousand instructions; a run that nobody touched so long must not look taken.
    const none = (idle & 0xffff) << 16;
    for (let i = 0; i < this.#threads; i++) Atomics.store(this.#words, RUNS + LINE * i, none);
    this.#publish(idle + 1);
    this.#end = (idle + this.#executors.length + 1) | 0;
    return this.goOn(stop);
  }

  /** The leader's: goes on with a batch that "waits". */
  goOn(stop?: () => boolean): BatchEnd {
    for (let now = Atomics.load(this.#words, READY); now !== this.#end; ) {
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

  /** A helper's whole life. */
  serve(): void {
    let seen = Atomics.load(this.#words, READY);
    while (Atomics.load(this.#words, STOPPED) === 0) {
      this.#work(seen);
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

  /** Works on instruction number `now` until nothing is left of it; whoever finishes the last chunk opens the next. */
  #work(now: number): void {
    const index = this.indexOf(now);
    if (index < 0) return;
    const executor = this.#executors[index]!;
    if (executor.leaderOnly && !this.#isLeader) return;
    const taken = this.takeChunks(now, executor);
    if (taken === 0) return;
    // Asked before these are counted: afterwards the instruction may be over, and the next batch may have other numbers.
    const chunks = executor.chunks();
    if (Atomics.add(this.#words, DONE, taken) + taken === chunks) this.#publish(now + 1);
  }

  /** Takes chunks until none is left. Returns how many it took. */
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

  /** Does the only chunk of an instruction. */
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
      console.error(error);
    }
  }

  /**
   * Opens instruction number `start`, or the first after it that has more than one chunk: a single one is done here and now,
   * which takes less time than others need to hear of it.
   */
  #publish(start: number): void {
    const words = this.#words;
    let number = start | 0;
    for (let index = this.indexOf(number); index >= 0; index = this.indexOf(number)) {
      const executor = this.#executors[index]!;
      const chunks = executor.chunks();
      if (chunks > 1 || (chunks === 1 && executor.leaderOnly && !this.#isLeader)) break;
      if (chunks === 1) this.workAlone(index);
      number = (number + 1) | 0;
    }
    Atomics.store(words, DONE, 0);
    Atomics.store(words, READY, number);
    if (Atomics.load(words, SLEEPERS) > 0) Atomics.notify(words, READY);
  }

  /** Returns the number of the open instruction once it is no longer `now`; to the leader, `now` after one sleep. */
  protected waitPast(now: number, isLeader: boolean): number {
    const words = this.#words;
    const spins = Atomics.load(words, DROWSY) === 0 ? this.#spins : 1;
    for (let i = 0; i < spins; i++) {
      const seen = Atomics.load(words, READY);
      if (seen !== now) {
        this.#spins = Math.min(MOST_SPINS, this.#spins * SPIN_GROWTH);
        return seen;
      }
      pause();
    }
    this.#spins = Math.max(FEWEST_SPINS, this.#spins / 4);
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

  /** The number of the open instruction: it changes as the batch goes on. */
  get ready(): number {
    return Atomics.load(this.#words, READY);
  }

  /** Which instruction has this number; -1: none, the team is between two steps. */
  protected indexOf(number: number): number {
    return ((number >>> 0) % (this.#executors.length + 1)) - 1;
  }
}
