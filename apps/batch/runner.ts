// Runs batches: validates them, answers as many of their lines at a time as the answerer allows, and writes their files.
// Batches are taken in order of arrival; when the last lines of one are being answered, the next one's begin.
//
// All state is in the store: a runner that is killed loses only the incomplete answers, and the next one continues. A
// line that was begun three times and never ended is an error: it may be the cause of the crashes.

import { Backoff, retry, type Waits } from "../../src/base/backoff.ts";
import { messageOf } from "../../src/base/errors.ts";
import { StorageError } from "../../src/platform/database.ts";
import {
  type Batch,
  BatchOverError,
  type BatchState,
  batchLimits,
  endStates,
  type LineAnswer,
  type LineId,
  noUsage,
  type OutputLine,
  type TokenUsage,
} from "./batch.ts";
import { answerId, finalizeBatch } from "./finalize.ts";
import type { BatchStore, WaitingLine } from "./store.ts";
import { validateBatch } from "./validate.ts";

/** Computes the answers of lines. */
export interface Answerer {
  /** How many lines may run now; may change at any time. */
  parallel(): number;
  /** A route's answer, with any status. Rejects only when the signal is aborted, or with a bug. */
  answer(
    url: string,
    body: Uint8Array<ArrayBuffer>,
    signal: AbortSignal,
    line: LineId,
  ): Promise<LineAnswer>;
  /** Lines are computed in other processes, so none of them can have ended this one (default false). */
  readonly isElsewhere?: boolean;
}

export interface RunnerOptions {
  now?: () => number;
  log?: (line: string) => void;
  /** The pause before another try of a line that found no free sequence. */
  pauseMs?: number;
}

/** Lines that are fetched from the store at a time. */
const linesAtOnce = 128;

/** The interval at which expiry and waiting batches are checked without events. */
const tickMs = 5000;

/** The interval of messages that nothing can be saved. */
const stuckMs = 60_000;

/** A batch with running lines. */
interface Active {
  readonly id: string;
  readonly endpoint: string;
  readonly inputFile: string;
  readonly stop: AbortController;
  readonly claimed: Set<number>;
  /** Fetched and not yet begun. */
  next: WaitingLine[];
}

export class BatchRunner {
  readonly #store: BatchStore;
  readonly #answerer: Answerer;
  readonly #now: () => number;
  readonly #log: (line: string) => void;
  /** Back-off while there is no free sequence, or nothing can be saved. */
  readonly #waits: Waits;
  readonly #failures = new Backoff({ firstMs: tickMs, mostMs: 60_000, tries: Infinity });
  readonly #active = new Map<string, Active>();
  readonly #stop = new AbortController();
  /** Running lines in the order in which they began, each with the controller that gives it back. */
  readonly #running = new Map<Promise<void>, AbortController>();
  /** A line on its last try that was running whenever a process was killed: it runs alone, so that no other is blamed if it is the one that kills. */
  #alone: Promise<void> | undefined;
  /** Such a line waits until no other line is running. */
  #isAloneNext = false;
  /** The time of the last message that something cannot be saved. */
  #saidStuck = -Infinity;
  #loop: Promise<void> = Promise.resolve();
  #wake: () => void = () => {};
  #isAwake = true;

  constructor(store: BatchStore, answerer: Answerer, options: RunnerOptions = {}) {
    this.#store = store;
    this.#answerer = answerer;
    this.#now = options.now ?? Date.now;
    this.#log = options.log ?? (() => {});
    const { pauseMs = 1000 } = options;
    this.#waits = { firstMs: pauseMs, mostMs: 10 * pauseMs, tries: Infinity };
  }

  /** The number of running lines. */
  get running(): number {
    return this.#running.size;
  }

  /** Continues the batches that an earlier process left, until stop(). */
  start(): void {
    this.#loop = this.#run();
  }

  /** Something changed: a batch is new, or the number of parallel lines went up or down. */
  wake(): void {
    let over = this.#running.size - this.#answerer.parallel();
    for (const { signal } of this.#running.values()) if (signal.aborted) over--;
    // The last lines that began have the least to lose.
    for (const line of [...this.#running.values()].reverse()) {
      if (over <= 0) break;
      if (line.signal.aborted) continue;
      line.abort(new Error("others need the room"));
      over--;
    }
    this.#isAwake = true;
    this.#wake();
  }

  /** Cancels a batch; its running lines are given up. */
  cancel(id: string): Batch {
    const batch = this.#store.move(id, ["validating", "in_progress"], "cancelling");
    if (batch.state === "cancelling")
      this.#active.get(id)?.stop.abort(new BatchOverError("cancelled"));
    this.wake();
    return batch;
  }

  /** Another gateway continues the batch: its running lines are left to that gateway. */
  lose(id: string): void {
    this.#active.get(id)?.stop.abort(new Error("another gateway has the batch"));
    this.#active.delete(id);
    this.wake();
  }

  /** Gives back the running lines and ends. */
  async stop(): Promise<void> {
    this.#stop.abort(new Error("the server is stopping"));
    this.wake();
    await this.#loop;
    await Promise.all(this.#running.keys());
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    await this.#guarded("cleaning up", () => this.#store.files.clean());
    while (!signal.aborted) {
      this.#isAwake = false;
      const busy = await this.#guarded("a batch", () => this.#step());
      if (busy || this.#isAwake || signal.aborted) continue;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, tickMs);
        timer.unref?.();
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  /** One look at all batches; true: there is more to do at once. */
  async #step(): Promise<boolean> {
    let changed = false;
    this.#isAloneNext = false;
    for (const batch of this.#store.unfinished()) {
      if (this.#stop.signal.aborted) return false;
      if (!this.#store.isOwn(batch.id)) continue; // another gateway has taken it
      if (this.#now() >= batch.expiresAt && batch.state !== "finalizing") {
        await this.#end(batch, "expired");
        changed = true;
      } else if (batch.state === "validating") {
        await validateBatch(this.#store, batch, this.#stop.signal);
        changed = true;
      } else if (batch.state === "cancelling") {
        await this.#end(batch, "cancelled");
        changed = true;
      } else if (batch.state === "finalizing" || this.#fill(batch)) {
        await this.#end(batch, "completed");
        changed = true;
      }
    }
    return changed;
  }

  /** Begins as many lines as may run; true: all lines of this batch have answers. */
  #fill(batch: Batch): boolean {
    const active = this.#activate(batch);
    while (this.#running.size < this.#answerer.parallel() && !this.#isAloneNext && !this.#alone) {
      const line = this.#nextLine(active);
      if (!line) break;
      const isSuspect = line.tries === batchLimits.tries - 1;
      if (isSuspect && this.#running.size > 0) {
        active.next.unshift(line);
        this.#isAloneNext = true;
        break;
      }
      active.claimed.add(line.index);
      const own = new AbortController();
      const answering = this.#answer(active, line, own.signal).catch((error: unknown) => {
        this.#log(`batch ${batch.id}: line ${line.index + 1}: ${messageOf(error)}`);
      });
      const work = answering.finally(() => {
        active.claimed.delete(line.index);
        this.#running.delete(work);
        if (this.#alone === work) this.#alone = undefined;
        this.wake();
      });
      this.#running.set(work, own);
      if (isSuspect) this.#alone = work;
    }
    return active.claimed.size === 0 && this.#store.waiting(batch.id, 1).length === 0;
  }

  #activate({ id, endpoint, inputFile }: Batch): Active {
    const known = this.#active.get(id);
    if (known) return known;
    const active = {
      ...{ id, endpoint, inputFile, stop: new AbortController() },
      ...{ claimed: new Set<number>(), next: [] },
    };
    this.#active.set(id, active);
    return active;
  }

  #nextLine(active: Active): WaitingLine | undefined {
    if (active.next.length === 0) {
      const limit = linesAtOnce + active.claimed.size;
      const lines = this.#store.waiting(active.id, limit);
      active.next = lines.filter(({ index }) => !active.claimed.has(index));
    }
    return active.next.shift();
  }

  /** Answers a line and saves the answer; a bug is logged, and is the line's answer. */
  async #answer(active: Active, line: WaitingLine, own: AbortSignal): Promise<void> {
    const { id, endpoint, inputFile } = active;
    const signal = AbortSignal.any([own, active.stop.signal, this.#stop.signal]);
    const { isElsewhere = false } = this.#answerer;
    let hasBegun = false;
    try {
      if (line.tries >= batchLimits.tries) {
        const why = `it was begun ${line.tries} times, and Lantern ended each time before there was an answer`;
        const refusal = failure(500, `this request is not tried again: ${why}`);
        return await this.#save(active, line, refusal, signal);
      }
      const body = await this.#bodyOf(inputFile, line);
      const backoff = new Backoff(this.#waits);
      for (let tries = line.tries; ; tries++) {
        signal.throwIfAborted();
        if (!isElsewhere) await this.#stored(() => this.#store.began(id, line.index), signal);
        hasBegun = !isElsewhere;
        const at = { batch: id, place: line.index };
        const answer = await this.#answerer.answer(endpoint, body, signal, at);
        if (signal.aborted) break;
        const isBusy = answer.status === 429 || answer.status === 503;
        if (isBusy && hasBegun) {
          await this.#stored(() => this.#store.gaveBack(id, line.index), signal);
          hasBegun = false;
        }
        const isOver = answer.status < 500 || tries + 1 >= batchLimits.tries;
        if (!isBusy && isOver) return await this.#save(active, line, answer, signal);
        if (isBusy) tries--;
        await backoff.failed(signal);
      }
    } catch (error) {
      if (!signal.aborted) {
        this.#log(`batch ${id}: line ${line.index + 1}: ${messageOf(error)}`);
        const refusal = failure(500, "the request could not be answered");
        return await this.#save(active, line, refusal, signal);
      }
    }
    try {
      if (hasBegun) this.#store.gaveBack(id, line.index); // it was not the line's fault
    } catch (error) {
      if (!(error instanceof StorageError)) throw error; // a full disk: it counts as a try
    }
  }

  /** The body alone, parsed from its line. */
  async #bodyOf(inputFile: string, line: WaitingLine): Promise<Uint8Array<ArrayBuffer>> {
    const bytes = await this.#store.files.folder.read(inputFile, line.start, line.end);
    const { body } = JSON.parse(new TextDecoder().decode(bytes)) as { body: unknown };
    return new TextEncoder().encode(JSON.stringify(body));
  }

  /**
   * Saves a change. While that is not possible, because the disk is full, it waits and tries again: no computed answer is lost, and no
   * line is to blame.
   */
  async #stored(save: () => void, signal: AbortSignal): Promise<void> {
    const onFailure = (error: unknown): void => {
      if (!(error instanceof StorageError)) throw error;
      if (this.#now() - this.#saidStuck <= stuckMs) return;
      this.#saidStuck = this.#now();
      this.#log(`batches wait until they can be saved: ${messageOf(error)}`);
    };
    signal.throwIfAborted();
    await retry(async () => save(), this.#waits, { signal, onFailure });
  }

  async #save(
    { id }: Active,
    { index, customId }: WaitingLine,
    answer: LineAnswer,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#stored(() => saveAnswer(this.#store, id, { index, customId }, answer), signal);
  }

  async #end(batch: Batch, wanted: BatchState): Promise<void> {
    const { id } = batch;
    const active = this.#active.get(id);
    active?.stop.abort(new BatchOverError(wanted));
    while (active && active.claimed.size > 0) await Promise.race(this.#running.keys());
    this.#active.delete(id);
    if (!this.#store.isOwn(id)) return;
    if (wanted !== "completed") this.#store.giveUp(id, wanted as "cancelled" | "expired");
    const { state, counts, at } = this.#store.move(id, ["validating", "in_progress"], "finalizing");
    if (endStates.has(state)) return;
    await finalizeBatch(this.#store, batch, endOf(wanted, counts, at), this.#stop.signal);
  }

  async #guarded<T>(what: string, work: () => T | Promise<T>): Promise<T | undefined> {
    try {
      const done = await work();
      this.#failures.succeeded();
      return done;
    } catch (error) {
      if (!this.#stop.signal.aborted) {
        this.#log(`batches: ${what}: ${messageOf(error)}`);
        await this.#failures.failed(this.#stop.signal);
      }
      return undefined;
    }
  }
}

/** Stores a line's answer once; false: the line has one already. */
export function saveAnswer(
  store: BatchStore,
  batch: string,
  { index, customId }: Pick<WaitingLine, "index" | "customId">,
  { status, requestId, body }: LineAnswer,
): boolean {
  const line: OutputLine = {
    id: answerId(batch, index),
    custom_id: customId,
    response: { status_code: status, request_id: requestId, body },
    error: null,
  };
  const state = status === 200 ? "done" : "failed";
  return store.finish(batch, index, state, JSON.stringify(line), usageOf(body));
}

/** A batch whose files a killed process did not write keeps the end it had; one with all answers is complete, however late. */
function endOf(wanted: BatchState, counts: Batch["counts"], at: Batch["at"]): BatchState {
  if (counts.expired > 0) return "expired";
  if (at.cancelling !== undefined) return "cancelled";
  return counts.total > 0 ? "completed" : wanted;
}

function failure(status: number, message: string): LineAnswer {
  const error = { message, type: "server_error", param: null, code: "no_answer" };
  return { status, requestId: "", body: { error } };
}

/** The tokens that an answer reports, under OpenAI's or Anthropic's names. */
function usageOf(body: unknown): TokenUsage {
  const { usage } = (body ?? {}) as { usage?: Readonly<Record<string, unknown>> };
  if (!usage) return noUsage;
  const details = (usage.prompt_tokens_details ?? usage.input_tokens_details ?? {}) as {
    cached_tokens?: unknown;
  };
  const number = (...values: unknown[]): number =>
    values.find((value): value is number => Number.isSafeInteger(value)) ?? 0;
  return {
    input: number(usage.prompt_tokens, usage.input_tokens),
    cached: number(details.cached_tokens, usage.cache_read_input_tokens),
    output: number(usage.completion_tokens, usage.output_tokens),
  };
}
