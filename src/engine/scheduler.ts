// Continuous batching: puts tokens of all running generations into one batch, so that the weights are read once for all
// of them. Generations join and leave at every batch; none of them knows of the others.
//
// A batch takes one token of every sequence that decodes, then prompt tokens: as many as there is room for, but while
// somebody decodes no more than `promptChunk`, so that a long prompt does not stall them, and what fills the backend's tiles
// of tokens up. Whoever was left out comes first in the next batch. A batch begins when all participants have asked for it;
// one that takes its time (it is being opened, it waits for something) is waited for a millisecond at most.

import type { Backend, BatchPhase, Tap } from "../backends/backend.ts";
import { AbortedError, ContextError } from "../base/errors.ts";
import type { Batch } from "../graph/batch.ts";
import type { OutputName } from "../graph/graph.ts";
import type { Laps } from "../profile/laps.ts";
import type { Sequence } from "./state/sequence.ts";

/** Copies an output of a token into a buffer of the caller's. */
export type ReadOutput = (output: OutputName, target: Float32Array) => Promise<void> | void;

export interface AdvanceOptions {
  /** Whether something will be read of tokens[index]. */
  wants(index: number): boolean;
  /** Called for those, in order. */
  onOutput(index: number, read: ReadOutput): unknown;
  /** false: never logits. Default: true. */
  logits?: boolean;
  /** Asked on the way: whether to give up. */
  stop(): boolean;
  /** Default: "prompt". */
  phase?: BatchPhase;
  /** Sees every value of the batches that the tokens are in; these batches are nobody else's. */
  tap?: Tap;
}

export interface SchedulerParts {
  readonly backend: Backend;
  readonly batch: Batch;
  /** Prompt tokens of a batch in which others decode. */
  readonly promptChunk: number;
  /** Tokens that the backend computes at once; such a batch is filled up to a multiple of them. */
  readonly tokenTile: number;
  /** Makes room for the state of so many more tokens of a sequence, or throws. */
  makeRoom(sequence: Sequence, count: number): void;
  readonly laps: Laps | undefined;
}

interface Job {
  readonly sequence: Sequence;
  readonly tokens: ArrayLike<number>;
  readonly from: number;
  readonly options: AdvanceOptions;
  readonly resolve: (taken: number) => void;
  readonly reject: (error: unknown) => void;
}

/** A job in a batch: how many of its tokens, and what to go back to when the batch fails. */
interface Entry {
  readonly job: Job;
  readonly count: number;
  readonly before: number;
}

export class Scheduler {
  readonly #parts: SchedulerParts;
  /** In the order in which they came. */
  #waiting: Job[] = [];
  /** Batches that were computed, and the sequences in them, added up. */
  batches = 0;
  batchSequences = 0;
  #participants = 0;
  #isRunning = false;
  #isPatient = false;

  constructor(parts: SchedulerParts) {
    this.#parts = parts;
  }

  /** A generation begins that will ask for batches until it leaves. */
  join(): void {
    this.#participants++;
  }

  leave(): void {
    this.#participants--;
    this.#wake(); // the others may have waited for it
  }

  /**
   * Appends up to one batch's worth of tokens[from...] to the sequence and computes them. Returns how many were taken.
   * An AbortedError (see AdvanceOptions.stop), like any other, leaves the sequence as it was.
   */
  advance(
    sequence: Sequence,
    tokens: ArrayLike<number>,
    from: number,
    options: AdvanceOptions,
  ): Promise<number> {
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    this.#waiting.push({ sequence, tokens, from, options, resolve, reject });
    this.#wake();
    return promise;
  }

  #wake(): void {
    if (this.#isRunning || this.#waiting.length === 0) return;
    if (this.#waiting.length >= this.#participants) {
      void this.#runBatch();
      return;
    }
    if (this.#isPatient) return;
    this.#isPatient = true;
    // Those that are on their way come back without waiting for a timer; whoever does not is not waited for any longer.
    setTimeout(() => {
      this.#isPatient = false;
      if (!this.#isRunning && this.#waiting.length > 0) void this.#runBatch();
    });
  }

  async #runBatch(): Promise<void> {
    this.#isRunning = true;
    const entries = this.#fill();
    try {
      if (entries.length > 0) await this.#compute(entries);
      for (const { job } of entries) job.sequence.commit();
      for (const { job, count } of entries) job.resolve(count);
    } catch (error) {
      // What was not computed is not kept.
      for (const { job, before } of entries) {
        job.sequence.restore(before);
        job.reject(error);
      }
    } finally {
      this.#isRunning = false;
      this.#wake();
    }
  }

  /** Fills the batch with tokens of those that wait; those that gave up, or for which there is no room, hear of it. */
  #fill(): Entry[] {
    const { batch, promptChunk, tokenTile } = this.#parts;
    const { maxTokens } = batch.limits;
    batch.clear();
    const entries: Entry[] = [];
    const left: Job[] = [];
    // Whoever looks at the values of a batch must find no others' among them.
    const watcher = this.#waiting.find(({ options }) => options.tap);
    const add = (job: Job, most: number) => {
      if (job.options.stop()) job.reject(new AbortedError("the batch"));
      else if (watcher && job !== watcher) left.push(job);
      else if (this.#takes(job, most) === 0) left.push(job);
      else this.#add(job, most, entries);
    };
    const isShort = (job: Job) => job.tokens.length - job.from === 1;
    for (const job of this.#waiting) if (isShort(job)) add(job, maxTokens);
    const chunked = Math.ceil((batch.tokenCount + promptChunk) / tokenTile) * tokenTile;
    const most = entries.length > 0 ? chunked : maxTokens;
    for (const job of this.#waiting) if (!isShort(job)) add(job, Math.min(most, maxTokens));
    this.#waiting = left;
    return entries;
  }

  /** Tokens of a job for which the batch has room, and for what is read of them. */
  #takes({ sequence, tokens, from, options }: Job, most: number): number {
    const { batch } = this.#parts;
    const left = tokens.length - from;
    const room = sequence.batchTokens(Math.min(left, most - batch.tokenCount), left);
    let outputs = batch.limits.maxOutputs - batch.outputCount;
    for (let i = 0; i < room; i++) if (options.wants(from + i) && outputs-- === 0) return i;
    return Math.max(room, 0);
  }

  /** Adds tokens of a job until the batch has `most`; one for which there is no room hears of it. */
  #add(job: Job, most: number, entries: Entry[]): void {
    const { batch, makeRoom } = this.#parts;
    const { sequence, tokens, from, options } = job;
    const count = this.#takes(job, most);
    const before = sequence.length;
    try {
      if (before + count > sequence.capacity) {
        throw new ContextError(`the context is full: it holds ${sequence.capacity} tokens`);
      }
      makeRoom(sequence, count);
    } catch (error) {
      job.reject(error);
      return;
    }
    const first = sequence.append(tokens, from, count);
    for (let i = 0; i < count; i++) {
      batch.add(tokens[from + i]!, first + i, sequence, options.wants(from + i));
    }
    entries.push({ job, count, before });
  }

  async #compute(entries: readonly Entry[]): Promise<void> {
    const { backend, batch, laps } = this.#parts;
    const decodes = entries.some(({ job }) => job.options.phase === "generation");
    const phase: BatchPhase = decodes ? "generation" : "prompt";
    laps?.lap(phase, "bookkeeping");
    // One that gives up does not stop the others; its tokens are computed for nothing.
    const stop = () => entries.every(({ job }) => job.options.stop());
    const tap = entries[0]!.job.options.tap; // then it is the only one
    batch.wantsLogits = entries.some(({ job }) => job.options.logits ?? true);
    await backend.run(batch, { stop, phase, ...(tap && { tap }) });
    this.batches++;
    this.batchSequences += entries.length;
    laps?.lap(phase, "batch");
    let output = 0;
    let first = 0;
    for (const { job, count } of entries) {
      for (; output < batch.outputCount; output++) {
        const row = batch.outputRows[output]!;
        if (row >= first + count) break;
        const read: ReadOutput = (name, target) => backend.read(name, output, target);
        await job.options.onOutput(job.from + row - first, read);
      }
      first += count;
    }
    laps?.lap(phase, "logits");
  }
}
