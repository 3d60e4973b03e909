// The leader's side of weights on disk: it opens the files, starts the readers, and before each batch makes sure that the files
// are unchanged and that the readers are at the batch's beginning.

import { SourceError } from "../../../base/errors.ts";
import type { DirectFile } from "../../../platform/platform.ts";
import type { DiskUse, ExpertReads, WeightFiles } from "../../backend.ts";
import type { ArenaViews } from "../memory/arena.ts";
import type { Helpers, JobOf } from "../threads/helpers.ts";
import { DemandSlots } from "./demand-slots.ts";
import type { DiskLayout } from "./layout.ts";
import {
  BUSY_MS,
  batchBytesOf,
  diskBytesOf,
  READER_TIMES,
  SLEEP_MS,
  tokenBytesOf,
  WORD,
} from "./program.ts";

/** Pieces are counted on until here; then the readers begin anew. */
const RENUMBER: number = 2 ** 30;

export class DiskWeights {
  readonly files: readonly DirectFile[];
  readonly #layout: DiskLayout;
  readonly #views: ArenaViews;
  readonly #words: Int32Array;
  readonly #readers: Helpers;
  readonly #demand: DemandSlots | undefined;
  readonly #busyMs: number;
  #jobOf: JobOf | undefined;

  constructor(
    layout: DiskLayout,
    views: ArenaViews,
    open: NonNullable<WeightFiles["openDirect"]>,
    readers: Helpers,
    busyMs: number = BUSY_MS,
  ) {
    const { words } = layout.program;
    this.#layout = layout;
    this.#views = views;
    this.#words = views.i32.subarray(words / 4, words / 4 + WORD.count);
    this.#readers = readers;
    this.#busyMs = busyMs;
    const { demand } = layout.program;
    this.#demand = demand && new DemandSlots(demand, views);
    const files: DirectFile[] = [];
    this.files = files;
    try {
      for (const descriptor of layout.descriptors) files.push(open(descriptor));
    } catch (error) {
      this.#closeFiles();
      throw error;
    }
  }

  /** Starts the readers, which fill the ring at once. */
  start(jobOf: JobOf): void {
    this.#jobOf = jobOf;
    this.#readers.begin(jobOf);
  }

  async ready(): Promise<void> {
    await this.#readers.ready();
  }

  /** A reader has died; restart() before the next batch. */
  get isLost(): boolean {
    return this.#readers.isLost;
  }

  async restart(): Promise<void> {
    await this.#readers.end();
    Atomics.store(this.#words, WORD.busy, 0);
    this.#rewind();
    this.#readers.begin(this.#jobOf!);
    await this.ready();
  }

  /** Before each batch. Throws if a file has changed. */
  begin(): void {
    for (const file of this.files) {
      const changed = file.changed();
      if (changed) {
        throw new SourceError(
          `weights are read from the file for every batch, but ${changed}. Open the model again`,
        );
      }
    }
    const words = this.#words;
    const { weights } = this.#layout.program;
    const isPaused = Atomics.load(words, WORD.paused) !== 0;
    const isMidway =
      weights.length > 0 && Atomics.load(words, WORD.released) % weights.length !== 0;
    const hasFailed = Atomics.load(words, WORD.failed) !== 0;
    if (isPaused || isMidway || hasFailed || Atomics.load(words, WORD.next) > RENUMBER)
      this.#pause();
  }

  /** The error of a read in the last batch; undefined: none. */
  failure(): SourceError | undefined {
    const words = this.#words;
    if (Atomics.load(words, WORD.failed) === 0) return undefined;
    const { message } = this.#layout.program;
    const length = this.#views.i32[message / 4]!;
    // A copy: TextDecoder takes no shared memory.
    const bytes = this.#views.u8.slice(message + 4, message + 4 + length);
    const why = new TextDecoder().decode(new Uint8Array(bytes));
    return new SourceError(
      `a weight could not be read from disk: ${why}. The batch is lost; the next one tries again`,
    );
  }

  /** Stops the readers where they are and lets them begin anew. Throws if a read does not end. */
  #pause(): void {
    const words = this.#words;
    Atomics.store(words, WORD.paused, 1);
    const since = performance.now();
    for (let busy = Atomics.load(words, WORD.busy); busy > 0; ) {
      Atomics.wait(words, WORD.busy, busy, SLEEP_MS);
      busy = Atomics.load(words, WORD.busy);
      if (this.isLost) break; // its piece is never finished
      if (busy > 0 && performance.now() - since > this.#busyMs) {
        throw new SourceError(
          `the disk still does not answer: reads of weights have been under way for more than ${this.#busyMs / 1000} s. Try again when it does`,
        );
      }
    }
    this.#rewind();
  }

  /** Moves readers to the beginning of a round; no reader has a piece, and no thread computes. */
  #rewind(): void {
    this.#demand?.reset();
    const words = this.#words;
    const { done, weights } = this.#layout.program;
    this.#views.i32.fill(0, done / 4, done / 4 + weights.length);
    for (const word of [WORD.next, WORD.released, WORD.failed, WORD.paused]) {
      Atomics.store(words, word, 0);
    }
    Atomics.add(words, WORD.work, 1);
    Atomics.notify(words, WORD.work);
  }

  get use(): DiskUse {
    const { program, plan } = this.#layout;
    const [first] = program.demand?.weights ?? [];
    return {
      weights: program.weights.length,
      fileBytes: diskBytesOf(program),
      batchBytes: batchBytesOf(program),
      tokenBytes: tokenBytesOf(program),
      ringBytes: plan.ringBytes,
      ...(first && { experts: { all: first.experts, used: first.used, slots: first.slots } }),
      isDirect: this.files.every(({ isDirect }) => isDirect),
    };
  }

  /** Cache hits and reads of experts; undefined: none is read on demand. */
  get counts(): ExpertReads | undefined {
    return this.#demand?.counts;
  }

  /** When a thread was lost that may have used experts, and none computes. */
  forgetUsers(): void {
    if (this.#demand) this.#pause();
  }

  /** The readers' times and bytes so far. */
  get times(): { readMs: number; packMs: number; bytes: number } {
    const { times, readers } = this.#layout.program;
    const { numbers, read, pack, bytes } = READER_TIMES;
    const spent = new Float64Array(this.#views.buffer, times, readers * numbers);
    const sum = (of: number) =>
      Array.from({ length: readers }, (_, i) => spent[i * numbers + of]!).reduce((a, b) => a + b);
    return { readMs: sum(read), packMs: sum(pack), bytes: sum(bytes) };
  }

  /** Ends the readers; resolves when none of them reads any more. */
  async end(): Promise<void> {
    Atomics.store(this.#words, WORD.stopped, 1);
    Atomics.add(this.#words, WORD.work, 1);
    Atomics.notify(this.#words, WORD.work);
    try {
      await this.#readers.end();
    } finally {
      this.#closeFiles();
    }
  }

  #closeFiles(): void {
    for (const file of this.files) file.close();
  }
}
