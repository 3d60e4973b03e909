// Continuous batching: puts tokens of all running generations into one batch, so that the weights are read once for
// all of them. Generations join and leave at every batch; none knows about the others.
//
// A batch takes one token of every decoding sequence, then prompt tokens, as many as fit (prompt-order.ts). While others decode, prompt tokens are limited to
// `promptChunk`, rounded up to fill the backend's tiles, so that a long prompt does not stall the others. Decoding sequences that did not fit come first in the
// next batch. Drafted tokens (speculate/) come after the tokens that every decoding sequence must compute; those that do not fit are left out. A batch starts
// when all participants have asked for it; a participant that is busy elsewhere is waited for at most a millisecond, a prompt that has begun for three. On a
// device, a prompt that would leave room in the batch also waits for prompts that are about to come. Background work (background.ts) gets the tokens that are
// left.

import type { Backend, BatchPhase } from "../backends/backend.ts";
import { AbortedError, ContextError } from "../base/errors.ts";
import type { Batch } from "../graph/batch.ts";
import type { Laps } from "../profile/laps.ts";
import {
  type BackgroundPlace,
  BackgroundShare,
  type SharedCosts,
  YieldError,
} from "./background.ts";
import type { CoreTurn } from "./core-turns.ts";
import {
  type AdvanceOptions,
  dueTokens,
  type Entry,
  giveUp,
  hasMore,
  inOrder,
  isShort,
  type Job,
  knownTokens,
  type ReadBest,
  type ReadOutput,
} from "./job.ts";
import { PromptOrder } from "./prompt-order.ts";
import type { BatchCosts } from "./speculate/costs.ts";
import type { Sequence } from "./state/sequence.ts";

export interface SchedulerParts {
  readonly backend: Backend;
  readonly batch: Batch;
  /** Prompt tokens in a batch while others decode. */
  readonly promptChunk: number;
  /** Tokens that the backend computes at once; such a batch is filled up to a multiple of this. */
  readonly tokenTile: number;
  /** Makes room for the state of `count` more tokens of a sequence, or throws. */
  makeRoom(sequence: Sequence, count: number): void;
  /** Called after each batch. */
  onBatch?(): void;
  readonly laps: Laps | undefined;
  /** Learns the times of batches. */
  readonly costs?: BatchCosts | undefined;
  /** The times of batches with foreground tokens in them, for background ones. Default: more tokens take no longer. */
  readonly sharedCosts?: SharedCosts | undefined;
  /** Before and after each batch; undefined: no other engine shares the cores. */
  readonly turn?: Pick<CoreTurn, "take" | "wait" | "begin" | "release" | "end"> | undefined;
  /** Whether foreground work is about to ask for batches: background tokens alone are not computed then. Default: never. */
  foregroundComes?(): boolean;
  /** Whether prompts are about to ask for batches. Default: never. */
  promptsCome?(): boolean;
}

/** Timers of a millisecond, beside the first, for which a batch waits for generations that are about to ask. */
const MORE_TIMERS = 2;

export class Scheduler {
  readonly #parts: SchedulerParts;
  /** The waiting jobs in order of arrival. */
  #waiting: Job[] = [];
  /** Number of batches computed, and the sum of their sequences. */
  batches = 0;
  batchSequences = 0;
  #participants = 0;
  /** The foreground ones among them. */
  #foreground = 0;
  readonly #share: BackgroundShare;
  readonly #order = new PromptOrder();
  #isRunning = false;
  /** The last foreground generation has left, and its answer may not be sent yet. */
  #isAnswering = false;
  #isPatient = false;
  /** Sequences of the last batch that have more tokens of a prompt, and have not asked for the next batch yet. */
  readonly #begun = new Set<Sequence>();
  /** Timers that may still be waited for, for these and for prompts that come. */
  #patience = MORE_TIMERS;
  #isResting = false;
  /** When the last batch was computed. */
  #computedAt = 0;

  constructor(parts: SchedulerParts) {
    this.#parts = parts;
    this.#share = new BackgroundShare(parts.sharedCosts);
  }

  /** The generations with tokens in the same batches as another one: for a foreground generation, only the ones that do not yield to it. */
  neighbours(place: BackgroundPlace | undefined): number {
    return (place ? this.#participants : this.#foreground) - 1;
  }

  /** A generation starts; it will ask for batches until it leaves. */
  join(place?: BackgroundPlace): void {
    this.#participants++;
    if (!place) this.#foreground++;
  }

  leave(place?: BackgroundPlace): void {
    this.#participants--;
    if (!place) this.#foreground--;
    // Nobody asks for another batch of this turn.
    if (this.#participants === 0 && !this.#isRunning) this.#parts.turn?.end();
    if (place || this.#foreground > 0) {
      this.wake(); // the others may have waited for it
      return;
    }
    // Its answer is sent first: a batch of background tokens may take a second, and this thread with it.
    this.#isAnswering = true;
    setTimeout(() => {
      this.#isAnswering = false;
      this.wake();
    });
  }

  /**
   * Appends up to one batch of tokens[from...] to the sequence and computes them. Returns the number of tokens taken. Any error, an AbortedError (see
   * AdvanceOptions.stop) included, leaves the sequence as it was. `place`: for background work, which may also get a YieldError.
   */
  advance(
    sequence: Sequence,
    tokens: ArrayLike<number>,
    from: number,
    options: AdvanceOptions,
    place?: BackgroundPlace,
  ): Promise<number> {
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    this.#begun.delete(sequence);
    this.#waiting.push({ sequence, tokens, from, options, place, resolve, reject });
    this.wake();
    return promise;
  }

  /** Something that a batch may wait for has changed. */
  wake(): void {
    if (this.#isRunning) return;
    this.#letYield();
    if (this.#waiting.length === 0) return;
    if (this.#haveAsked() && this.#mayStart() && !this.#awaitsPrompts()) {
      void this.#runBatch();
      return;
    }
    if (this.#isPatient) return;
    this.#isPatient = true;
    // Participants that are about to ask do so without waiting for a timer; slower ones are not waited for. But a prompt that has begun
    // asks in the next turn of the event loop: a timer that was set earlier, or is late, may come before that.
    const start = () => {
      const awaits = this.#begun.size > 0 || this.#awaitsPrompts();
      if (!this.#isRunning && awaits && this.#patience-- > 0) {
        setTimeout(start);
        return;
      }
      this.#isPatient = false;
      if (this.#isRunning || this.#waiting.length === 0) return;
      if (this.#mayStart()) void this.#runBatch();
      else if (this.#foreground === 0) this.wake(); // new jobs are let in meanwhile
    };
    setTimeout(start);
  }

  /** Whether the batch waits for no generation: foreground generations do not wait for background ones. */
  #haveAsked(): boolean {
    if (this.#waiting.length >= this.#participants) return true;
    if (this.#foreground === 0) return false;
    return this.#waiting.filter(({ place }) => !place).length >= this.#foreground;
  }

  /** A device takes little longer for several prompts than for one: the first of several simultaneous prompts is not computed alone. */
  #awaitsPrompts(): boolean {
    const { backend, batch, promptsCome } = this.#parts;
    if (!backend.computesApart || this.#patience <= 0 || !promptsCome?.()) return false;
    let tokens = 0;
    let hasPrompt = false;
    for (const job of this.#waiting) {
      if (job.place) continue;
      tokens += job.tokens.length - job.from;
      hasPrompt ||= !isShort(job);
    }
    return hasPrompt && tokens < batch.limits.maxTokens;
  }

  /** Background tokens alone are computed only while there is no foreground work. */
  #mayStart(): boolean {
    if (this.#waiting.some(({ place }) => !place)) return true;
    return this.#foreground === 0 && !this.#isAnswering && !this.#parts.foregroundComes?.();
  }

  /** Refuses background jobs if others need their room. */
  #letYield(): void {
    if (!this.#waiting.some(({ place }) => place?.mustYield)) return;
    const yielding = this.#waiting.filter(({ place }) => place?.mustYield);
    this.#waiting = this.#waiting.filter(({ place }) => !place?.mustYield);
    for (const job of yielding) giveUp(job, job.sequence.length, new YieldError());
  }

  async #runBatch(): Promise<void> {
    this.#isRunning = true;
    this.#begun.clear();
    this.#patience = MORE_TIMERS;
    const entries = this.#fill();
    try {
      if (entries.length > 0) await this.#compute(entries);
      for (const { job } of entries) job.sequence.commit();
      for (const { job, count } of entries) if (hasMore(job, count)) this.#begun.add(job.sequence);
      for (const { job, count } of entries) job.resolve(count);
    } catch (error) {
      if (error instanceof OvertakenError) this.#putBack(entries);
      else for (const { job, before } of entries) giveUp(job, before, error);
    } finally {
      this.#isRunning = false;
      this.wake();
    }
  }

  /** The batch was not computed: its jobs are the first of the next one. */
  #putBack(entries: readonly Entry[]): void {
    const again: Job[] = [];
    for (const { job, before } of entries) {
      try {
        job.sequence.restore(before);
        if (job.options.drafted) job.sequence.hold();
        again.push(job);
      } catch (error) {
        job.reject(error);
      }
    }
    this.#waiting.unshift(...again);
  }

  /**
   * Fills the batch with tokens of waiting jobs; rejects jobs that gave up or find no room. It never throws: a job that throws
   * is rejected and left out of the batch.
   */
  #fill(): Entry[] {
    const { batch, promptChunk, tokenTile } = this.#parts;
    const { maxTokens } = batch.limits;
    batch.clear();
    const entries: Entry[] = [];
    const left: Job[] = [];
    // A tap must not see other sequences in its batch.
    const watcher = this.#waiting.find(({ options }) => options.tap);
    const add = (job: Job, most: number) => {
      const before = job.sequence.length;
      const { tokenCount, outputCount, wholeCount } = batch;
      try {
        if (job.options.stop()) job.reject(new AbortedError("the batch"));
        else if (watcher && job !== watcher) left.push(job);
        else if (this.#takes(job, most) === 0) this.#postpone(job, left);
        else entries.push({ job, count: this.#add(job, most), before });
      } catch (error) {
        batch.tokenCount = tokenCount;
        batch.outputCount = outputCount;
        batch.wholeCount = wholeCount;
        giveUp(job, before, error);
      }
    };
    const addShort = (jobs: readonly Job[], most: number) => {
      let due = 0; // tokens that decoding sequences behind the present one must compute
      for (const job of jobs) if (isShort(job)) due += dueTokens(job);
      for (const job of jobs) {
        if (!isShort(job)) continue;
        due -= dueTokens(job);
        add(job, Math.max(most - due, Math.min(most, batch.tokenCount + dueTokens(job))));
      }
    };
    const foreground = this.#waiting.filter(({ place }) => !place);
    const background = this.#waiting.filter(({ place }) => place);
    addShort(foreground, maxTokens);
    const chunked = Math.ceil((batch.tokenCount + promptChunk) / tokenTile) * tokenTile;
    const most = entries.length > 0 ? chunked : maxTokens;
    const prompts = this.#order.of(foreground.filter((job) => !isShort(job)));
    for (const job of prompts) add(job, Math.min(most, maxTokens));
    const before = batch.tokenCount;
    const room = this.#backgroundTokens(foreground);
    if (room > before) {
      addShort(background, room);
      for (const job of background) if (!isShort(job)) add(job, room);
      if (before > 0) this.#share.joined(before, batch.tokenCount - before);
    } else left.push(...background);
    this.#waiting = inOrder(left, this.#waiting);
    return entries;
  }

  /** The number of tokens in the batch if background ones join; none join if it is not above the batch's own. */
  #backgroundTokens(foreground: readonly Job[]): number {
    const { batch } = this.#parts;
    const { maxTokens } = batch.limits;
    if (foreground.length === 0) return maxTokens;
    // Neither a first token nor a batch that a tap sees has others beside it.
    const hasPrompt = foreground.some((job) => !isShort(job));
    if (hasPrompt) this.#share.promptComes();
    if (hasPrompt || foreground.some(({ options }) => options.tap)) return 0;
    return batch.tokenCount + this.#share.room(batch.tokenCount, maxTokens);
  }

  /** Leaves a job to a later batch, unless it does not even fit in an empty one: texts that are computed whole may not. */
  #postpone(job: Job, left: Job[]): void {
    const { batch } = this.#parts;
    if (batch.tokenCount > 0) left.push(job);
    else {
      throw new ContextError(
        `the text has ${job.tokens.length - job.from} tokens, which this model computes in one batch, but a batch holds ${batch.limits.maxTokens}`,
      );
    }
  }

  /** The number of a job's tokens that fit in the batch, with their outputs. */
  #takes({ sequence, tokens, from, options }: Job, most: number): number {
    const { batch } = this.#parts;
    const left = tokens.length - from;
    const room = sequence.batchTokens(
      Math.min(left, most - batch.tokenCount),
      knownTokens(left, options),
    );
    let outputs = batch.limits.maxOutputs - batch.outputCount;
    for (let i = 0; i < room; i++) if (options.wants(from + i) && outputs-- === 0) return i;
    return Math.max(room, 0);
  }

  /** Adds tokens of a job until the batch has `most`, and returns their number. */
  #add(job: Job, most: number): number {
    const { batch, makeRoom } = this.#parts;
    const { sequence, tokens, from, options } = job;
    const count = this.#takes(job, most);
    if (sequence.length + count > sequence.capacity) {
      throw new ContextError(`the context is full: it holds ${sequence.capacity} tokens`);
    }
    makeRoom(sequence, count);
    const known = knownTokens(tokens.length - from, options);
    const first = sequence.append(tokens, from, count, known);
    const isGenerated = options.phase === "generation";
    const isWhole = !options.best;
    for (let i = 0; i < count; i++) {
      const wants = options.wants(from + i);
      const row = batch.add(tokens[from + i]!, first + i, sequence, wants, isGenerated, isWhole);
      if (row >= 0 && options.best) batch.wantBest(row, options.best, options.adjusted);
      if (row < 0 || count > 1 || !options.next) continue;
      const { draw, follows } = options.next;
      batch.expect(row, draw, Math.min(follows, sequence.aheadTokens));
    }
    return count;
  }

  /** Whether threads sleep at once after a batch: another engine computes on the same cores then. */
  #rest(isOn: boolean): void {
    if (isOn === this.#isResting) return;
    this.#isResting = isOn;
    this.#parts.backend.rest?.(isOn);
  }

  async #compute(entries: readonly Entry[]): Promise<void> {
    const { backend, batch, laps, turn, costs } = this.#parts;
    const decodes = entries.some(({ job }) => job.options.phase === "generation");
    const phase: BatchPhase = decodes ? "generation" : "prompt";
    laps?.lap(phase, "bookkeeping");
    const isBackground = entries.every(({ job }) => job.place);
    let isOvertaken = false;
    // One job that gives up does not stop the others; its tokens are computed in vain.
    const stop = () => {
      isOvertaken ||= isBackground && (this.#parts.foregroundComes?.() ?? false);
      return isOvertaken || entries.every(({ job }) => job.options.stop());
    };
    const meanwhile = () => {
      for (const { job } of entries) job.options.meanwhile?.();
    };
    const tap = entries[0]!.job.options.tap; // a job with a tap is alone
    batch.wantsLogits = entries.some(({ job }) => job.options.logits ?? true);
    if (turn && !turn.take()) await turn.wait(stop);
    if (turn) this.#rest(turn.begin());
    const since = performance.now();
    this.#share.begins(!isBackground && decodes ? batch.tokenCount : 0, since);
    try {
      await backend.run(batch, { stop, phase, meanwhile, ...(tap && { tap }) });
    } catch (error) {
      if (isOvertaken && error instanceof AbortedError) throw new OvertakenError();
      throw error;
    } finally {
      turn?.release(this.#participants > 0);
    }
    // Tokens computed before they were asked for took the time since the batch before them.
    const began = backend.wasAhead ? this.#computedAt : since;
    this.#parts.onBatch?.();
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
        const best: ReadBest = (target) => backend.readBest?.(output, target) ?? false;
        const reading = job.options.onOutput(job.from + row - first, read, best);
        if (reading) await reading;
      }
      first += count;
    }
    // A drafted token's cost includes reading its logits.
    if (batch.outputCount === batch.tokenCount && !tap) {
      costs?.note(batch.tokenCount, performance.now() - began);
    } else if (!decodes && !tap) {
      costs?.notePrompt(batch.tokenCount, performance.now() - began);
    }
    this.#computedAt = performance.now();
    laps?.lap(phase, "logits");
  }
}

/** Foreground work came while a batch of background tokens was computed. */
class OvertakenError extends Error {}
