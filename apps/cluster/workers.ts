// The gateway's side of the workers: which of them are alive (their heartbeats), and the calls at each. A call is over when its last
// message came, or lost when its worker is gone, does not know it, or sent a message that never came. The caller may give a lost call to
// another worker.

import type { NatsConnection, RequestError } from "@nats-io/nats-core";
import { type ErrorFacts, factsToError } from "../../src/base/error-facts.ts";
import { AbortedError, messageOf, UsageError, WorkerError } from "../../src/base/errors.ts";
import { readBeat, readFacts } from "./checked.ts";
import { readHeld } from "./fingerprints.ts";
import {
  type AnswerMessage,
  type AnswerPart,
  type Beat,
  type CallableName,
  type CheckReply,
  type ClusterTimes,
  clusterTimes,
  subjects,
  type WorkerFacts,
} from "./messages.ts";
import { checkPayload, newPeerId } from "./peer.ts";
import type { WorkerView } from "./router.ts";
import { decode, encode } from "./wire.ts";

/** The worker of a call is gone, or messages of it are. The request itself may be fine. */
export class LostCallError extends WorkerError {
  override name: string = "LostCallError";
}

interface Call {
  readonly id: string;
  readonly worker: string;
  received: number;
  readonly onEvent: (event: unknown) => void;
  resolve(result: unknown): void;
  reject(error: Error): void;
}

interface Known {
  readonly id: string;
  model: string;
  fingerprint: string;
  facts: WorkerFacts;
  capacity: number;
  /** The load of other gateways there, as of its last heartbeat. */
  others: number;
  tokensPerSecond: number;
  held: ReadonlySet<number>;
  heldText: string;
  isLeaving: boolean;
  /** The time of the last heartbeat, and of the last answer to a check. */
  beatAt: number;
  checkedAt: number;
  /** Checks in a row that were not received. */
  missed: number;
  isChecking: boolean;
  readonly calls: Map<string, Call>;
}

/** A worker that may get calls. */
export type KnownWorker = WorkerView & Pick<Known, "model" | "fingerprint" | "facts" | "others">;

export interface CallOptions {
  onEvent?: ((event: never) => void) | undefined;
  signal?: AbortSignal | undefined;
}

export class Workers {
  readonly gateway: string = newPeerId();
  readonly #connection: NatsConnection;
  readonly #times: ClusterTimes;
  readonly #log: (line: string) => void;
  readonly #known = new Map<string, Known>();
  readonly #asked = new Set<string>();
  readonly #calls = new Map<string, Call>();
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #subscriptions: { unsubscribe(): void }[];
  #changed: () => void = () => {};
  #waiting: (() => void)[] = [];

  constructor(
    connection: NatsConnection,
    log: (line: string) => void = () => {},
    times: Partial<ClusterTimes> = {},
  ) {
    this.#connection = connection;
    this.#log = log;
    this.#times = { ...clusterTimes, ...times };
    const on = (subject: string, handle: (data: Uint8Array, subject: string) => void) =>
      connection.subscribe(subject, {
        callback: (error, message) => {
          if (error) return log(`cluster: ${subject}: ${messageOf(error)}`);
          try {
            handle(message.data, message.subject);
          } catch (problem) {
            log(messageOf(problem));
          }
        },
      });
    this.#subscriptions = [
      // NATS controls who may write to which subject; no worker can speak for another.
      on(subjects.beats, (data, subject) => {
        const beat = readBeat(data);
        if (subject === subjects.beat(beat.worker)) this.#beat(beat);
      }),
      on(subjects.answers(this.gateway), (data, subject) => {
        const worker = subject.slice(subjects.answer(this.gateway, "").length);
        for (const part of decode(data) as AnswerMessage) this.#answer(part, worker);
      }),
    ];
    this.#timer = setInterval(() => this.#tick(), this.#times.check);
  }

  /** Calls back when a worker comes, goes or changes its model. */
  watch(changed: () => void): void {
    this.#changed = changed;
  }

  /** Workers that may get calls, and their facts. */
  list(): readonly KnownWorker[] {
    const now = performance.now();
    return [...this.#known.values()]
      .filter(
        ({ isLeaving, beatAt, missed }) =>
          !isLeaving && missed === 0 && now - beatAt <= this.#times.stale,
      )
      .map((known) => ({ ...known, load: known.others + known.calls.size }));
  }

  /** Whether it is known, even if it may get no calls now. */
  has(worker: string): boolean {
    return this.#known.has(worker);
  }

  /** Resolves with the next change, or after `ms`. */
  async change(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, ms);
    this.#waiting.push(resolve);
    await promise;
    clearTimeout(timer);
  }

  /** Rejects with a LostCallError if the worker is lost, and with the worker's own error otherwise. */
  async call(
    worker: string,
    method: CallableName,
    args: readonly unknown[],
    { onEvent = () => {}, signal }: CallOptions = {},
  ): Promise<unknown> {
    signal?.throwIfAborted();
    const known = this.#known.get(worker);
    if (!known) throw new LostCallError(`worker ${worker} is gone`);
    const id = newPeerId();
    const bytes = encode({ id, gateway: this.gateway, method, args });
    checkPayload(this.#connection, bytes, "a request");
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const call: Call = {
      ...{ id, worker, received: 0, resolve, reject },
      onEvent: onEvent as (event: unknown) => void,
    };
    const cancel = (): void => {
      this.#publish(subjects.cancel(worker), encode(id));
      // A generation ends with a result then; no caller waits for the end of any other method.
      if (method !== "generate") reject(new AbortedError("the request"));
    };
    signal?.addEventListener("abort", cancel);
    this.#calls.set(id, call);
    known.calls.set(id, call);
    try {
      this.#publish(subjects.call(worker), bytes);
      return await promise;
    } finally {
      signal?.removeEventListener("abort", cancel);
      this.#calls.delete(id);
      known.calls.delete(id);
    }
  }

  close(): void {
    clearInterval(this.#timer);
    for (const subscription of this.#subscriptions) subscription.unsubscribe();
    for (const call of this.#calls.values()) {
      call.reject(new AbortedError("the request"));
    }
  }

  #publish(subject: string, bytes: Uint8Array): void {
    if (!this.#connection.isClosed()) this.#connection.publish(subject, bytes);
  }

  #beat(beat: Beat): void {
    const known = this.#known.get(beat.worker);
    if (!known) return void this.#meet(beat);
    known.beatAt = performance.now();
    const wasLeaving = known.isLeaving;
    if (known.heldText !== beat.held) {
      known.held = readHeld(beat.held);
      known.heldText = beat.held;
    }
    const { capacity, tokensPerSecond, isLeaving } = beat;
    Object.assign(known, { capacity, tokensPerSecond, isLeaving, others: this.#others(beat) });
    if (wasLeaving !== isLeaving) this.#notify();
    else this.#wake();
  }

  /** Without the calls from here: some are on their way there, and some have ended since. */
  #others({ calls, lines }: Beat): number {
    const own = calls[this.gateway] ?? 0;
    return Object.values(calls).reduce((sum, count) => sum + count, lines - own);
  }

  /** A new worker: its unchanging facts are asked for once. */
  async #meet(beat: Beat): Promise<void> {
    const { worker, model, fingerprint, capacity, tokensPerSecond, held } = beat;
    if (beat.isLeaving || this.#asked.has(worker)) return;
    this.#asked.add(worker);
    try {
      const reply = await this.#connection.request(subjects.facts(worker), undefined, {
        timeout: this.#times.silent,
      });
      const now = performance.now();
      this.#known.set(worker, {
        ...{ id: worker, model, fingerprint, capacity, tokensPerSecond, isLeaving: false },
        others: this.#others(beat),
        facts: readFacts(reply.data),
        ...{ held: readHeld(held), heldText: held, beatAt: now, checkedAt: now },
        ...{ missed: 0, isChecking: false, calls: new Map() },
      });
      this.#notify();
    } catch (error) {
      // Its next heartbeat is another chance.
      if (error instanceof UsageError) this.#log(`${error.message} (worker ${worker})`);
    } finally {
      this.#asked.delete(worker);
    }
  }

  #answer([id, n, part]: AnswerPart, worker: string): void {
    const call = this.#calls.get(id);
    if (call?.worker !== worker) return; // of a call that was given up
    if (n !== call.received) {
      call.reject(new LostCallError(`${n - call.received} parts of an answer were lost`));
      return;
    }
    call.received++;
    const { event, error, result } = part as {
      event?: unknown;
      error?: ErrorFacts;
      result?: unknown;
    };
    if (event !== undefined) call.onEvent(event);
    else if (error !== undefined) call.reject(factsToError(error));
    else call.resolve(result);
  }

  #tick(): void {
    const now = performance.now();
    for (const known of this.#known.values()) {
      if (known.calls.size > 0) void (known.isChecking ? this.#knock(known) : this.#check(known));
      if (now - known.beatAt > 3 * this.#times.stale && known.calls.size === 0) {
        this.#known.delete(known.id);
        this.#log(`cluster: worker ${known.id} of ${known.model} is gone`);
        this.#notify();
      }
    }
  }

  /** Asks a worker for the progress of this gateway's calls. */
  async #check(known: Known): Promise<void> {
    known.isChecking = true;
    const calls = [...known.calls.values()];
    const started = performance.now();
    try {
      const bytes = encode({ calls: calls.map(({ id }) => id) });
      const timeout = this.#times.silent;
      const { data } = await this.#connection.request(subjects.check(known.id), bytes, { timeout });
      const { sent } = decode(data) as CheckReply;
      known.missed = 0;
      for (const [at, call] of calls.entries()) {
        // Messages of a connection stay in order: all that was sent before this reply has come, or never will.
        const count = sent[at] ?? -1;
        if (!this.#calls.has(call.id)) continue;
        if (count < 0) call.reject(new LostCallError("its worker does not know the call"));
        else if (count > call.received)
          call.reject(new LostCallError("messages of an answer were lost"));
      }
    } catch (error) {
      const isAlone = (error as Partial<RequestError>).isNoResponders?.() === true;
      known.missed++;
      // A worker that only lost its NATS server is back within a moment.
      const isLost = isAlone ? known.missed >= 2 : performance.now() - started >= this.#times.check;
      if (isLost) this.#lose(known);
    } finally {
      known.isChecking = false;
    }
  }

  /** While a check waits for its answer: a worker that has died since then never answers, and NATS knows that it is gone. */
  async #knock(known: Known): Promise<void> {
    try {
      const bytes = encode({ calls: [] });
      const timeout = this.#times.silent;
      await this.#connection.request(subjects.check(known.id), bytes, { timeout });
    } catch (error) {
      if ((error as Partial<RequestError>).isNoResponders?.() !== true) return; // the check finds out
      known.missed++;
      if (known.missed >= 2) this.#lose(known);
    }
  }

  #lose(known: Known): void {
    if (this.#connection.isClosed() || this.#known.get(known.id) !== known) return;
    this.#log(`cluster: worker ${known.id} of ${known.model} does not answer`);
    for (const call of known.calls.values()) call.reject(new LostCallError("its worker is gone"));
    this.#known.delete(known.id); // if it is alive, its next heartbeat shows it
    this.#notify();
  }

  #notify(): void {
    this.#changed();
    this.#wake();
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
