// The worker's side: one open model that answers the calls of gateways, and sends its status every second. A gateway can ask for the
// state of a running call, so it finds out about lost messages itself (workers.ts).

import type { Msg, NatsConnection, PermissionViolationError } from "@nats-io/nats-core";
import { errorToFacts } from "../../src/base/error-facts.ts";
import { AbortedError, messageOf, RestartingError, UsageError } from "../../src/base/errors.ts";
import type { GenerateOptions, Model } from "../../src/index.ts";
import { HeldPrefixes } from "./fingerprints.ts";
import {
  type AnswerContent,
  type Beat,
  type CallMessage,
  type CheckMessage,
  type ClusterTimes,
  callable,
  clusterTimes,
  subjects,
  type WorkerFacts,
} from "./messages.ts";
import { modelFingerprint } from "./model-fingerprint.ts";
import { Outbox } from "./outbox.ts";
import { heard, newPeerId } from "./peer.ts";
import { decode, encode } from "./wire.ts";

export interface WorkerOptions {
  readonly connection: NatsConnection;
  readonly model: Model;
  /** Its name for clients. */
  readonly modelId: string;
  /** For tests: the fingerprint of the model. */
  readonly fingerprint?: string;
  /** The group of workers that these credentials are good for; undefined: for all. */
  readonly group?: string | undefined;
  /** Calls that it computes at a time. */
  readonly capacity: number;
  readonly version: string;
  readonly log?: (line: string) => void;
  readonly times?: Partial<ClusterTimes>;
}

interface RunningCall {
  readonly gateway: string;
  readonly abort: AbortController;
  /** The number of parts of its answer that were sent. */
  sent: number;
  checkedAt: number;
}

/** Calls beyond this many are refused: a gateway that has not heard from this worker yet tries another. */
const MOST_CALLS = 4096;
/** The weight of a new measurement in the average. */
const NEW_SHARE = 0.2;

export class ClusterWorker {
  readonly id: string;
  /** The fingerprint of the model. */
  readonly fingerprint: string;
  readonly #options: WorkerOptions;
  readonly #times: ClusterTimes;
  readonly #calls = new Map<string, RunningCall>();
  readonly #held: HeldPrefixes;
  readonly #outbox: Outbox;
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #subscriptions: { unsubscribe(): void }[];
  #tokensPerSecond = 0;
  #promptPerSecond = 0;
  #isLeaving = false;
  #lines = 0;
  #answered = 0;
  #refused: string | undefined;
  #idle: () => void = () => {};

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.#times = { ...clusterTimes, ...options.times };
    this.fingerprint = options.fingerprint ?? modelFingerprint(options.model.info);
    this.#held = new HeldPrefixes(options.model.info.cacheTokens);
    const { connection, group } = options;
    this.id = group === undefined ? newPeerId() : `${group}.${newPeerId()}`;
    void this.#watch();
    this.#outbox = new Outbox(connection, this.id);
    const on = (subject: string, handle: (message: Msg) => void): { unsubscribe(): void } =>
      connection.subscribe(subject, {
        callback: (error, message) => {
          if (error) return this.#log(`${subject}: ${messageOf(error)}`);
          try {
            handle(message);
          } catch (problem) {
            this.#log(messageOf(problem));
          }
        },
      });
    this.#subscriptions = [
      on(subjects.call(this.id), ({ data }) => this.#take(decode(data) as CallMessage)),
      on(subjects.cancel(this.id), ({ data }) => this.#cancel(decode(data) as string)),
      on(subjects.check(this.id), (message) => this.#check(message)),
      on(subjects.facts(this.id), (message) => message.respond(encode(this.#facts()))),
    ];
    this.#beat();
    this.#timer = setInterval(() => this.#tick(), this.#times.beat);
  }

  /** Running lines of batches (line-worker.ts): gateways see them as load. */
  set lines(count: number) {
    this.#lines = count;
  }

  /** Calls that compute or wait here. */
  get running(): number {
    return this.#calls.size;
  }

  /** The number of answered calls. */
  get answered(): number {
    return this.#answered;
  }

  /** Tokens per second of one answer, as measured lately; 0: nothing was generated yet. */
  get tokensPerSecond(): number {
    return this.#tokensPerSecond;
  }

  /** Resolves when gateways can reach this worker, however often NATS is lost until then; rejects if its credentials do not allow that. */
  async ready(signal?: AbortSignal): Promise<void> {
    await heard(this.#options.connection, { log: (line) => this.#log(line), signal });
    await new Promise((resolve) => setTimeout(resolve, 0)); // NATS's earlier messages are delivered after it
    if (this.#refused === undefined) return;
    throw new UsageError(
      `cluster: these credentials may not be used for worker ${this.id}: NATS refused ${this.#refused}. Use credentials of a worker, and of its group if they are for one (docs/use/cluster.md has what a worker needs)`,
    );
  }

  /** Takes no new calls, lets running calls end for at most `graceMs`, and says goodbye. */
  async stop(graceMs: number = 5000): Promise<void> {
    this.#isLeaving = true;
    this.#beat();
    if (this.#calls.size > 0) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#idle = resolve;
      const timer = setTimeout(resolve, graceMs);
      await promise;
      clearTimeout(timer);
    }
    clearInterval(this.#timer);
    this.#outbox.flush();
    for (const subscription of this.#subscriptions) subscription.unsubscribe();
    for (const { abort } of this.#calls.values()) {
      abort.abort(new RestartingError("this worker is stopping"));
    }
  }

  /** Listens for NATS's refusals, for as long as the connection is there. */
  async #watch(): Promise<void> {
    for await (const status of this.#options.connection.status()) {
      if (status.type !== "error") continue;
      const { operation, subject } = status.error as Partial<PermissionViolationError>;
      if (!subject?.includes(this.id)) continue;
      this.#refused ??= `${operation === "publish" ? "a message to" : "to tell it of"} ${subject}`;
      this.#log(`NATS refused: ${messageOf(status.error)}`);
    }
  }

  #facts(): WorkerFacts {
    return { info: this.#options.model.info, version: this.#options.version };
  }

  #tick(): void {
    const now = performance.now();
    for (const { abort, checkedAt } of this.#calls.values()) {
      // Its gateway has died, or lost this worker and gave the call to another.
      if (now - checkedAt > this.#times.orphan) {
        abort.abort(new RestartingError("nobody asked about it for too long"));
      }
    }
    this.#beat();
  }

  #beat(): void {
    const { connection, modelId, capacity } = this.#options;
    const beat: Beat = {
      worker: this.id,
      model: modelId,
      fingerprint: this.fingerprint,
      calls: this.#countCalls(),
      lines: this.#lines,
      capacity,
      tokensPerSecond: this.#tokensPerSecond,
      promptPerSecond: this.#promptPerSecond,
      held: String(this.#held),
      isLeaving: this.#isLeaving,
    };
    if (!connection.isClosed()) connection.publish(subjects.beat(this.id), encode(beat));
  }

  #countCalls(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { gateway } of this.#calls.values()) counts[gateway] = (counts[gateway] ?? 0) + 1;
    return counts;
  }

  #check(message: Msg): void {
    const { calls } = decode(message.data) as CheckMessage;
    this.#outbox.flush(); // counted parts are sent before the reply
    const now = performance.now();
    const sent = calls.map((id) => {
      const call = this.#calls.get(id);
      if (call) call.checkedAt = now;
      return call?.sent ?? -1;
    });
    message.respond(encode({ sent }));
  }

  #cancel(id: string): void {
    this.#calls.get(id)?.abort.abort(new AbortedError("the request"));
  }

  #take(message: CallMessage): void {
    const { id, gateway } = message;
    if (this.#calls.has(id)) return; // sent twice
    const now = performance.now();
    const call = { gateway, abort: new AbortController(), sent: 0, checkedAt: now };
    this.#calls.set(id, call);
    void this.#answer(message, call, (part) => this.#send(gateway, id, call, part));
  }

  #send(gateway: string, id: string, call: RunningCall, part: AnswerContent): void {
    this.#outbox.add(gateway, [id, call.sent, part]);
    call.sent++;
  }

  async #answer(
    message: CallMessage,
    call: RunningCall,
    send: (part: AnswerContent) => void,
  ): Promise<void> {
    try {
      if (this.#isLeaving) throw new RestartingError("this worker is stopping");
      if (this.#calls.size > MOST_CALLS) {
        throw new RestartingError(`this worker has ${MOST_CALLS} calls and takes no more`);
      }
      send({ result: await this.#run(message, call.abort.signal, send) });
    } catch (error) {
      try {
        send({ error: errorToFacts(error) });
      } catch (lost) {
        this.#log(`an error could not be sent: ${messageOf(lost)}`); // the gateway's check finds out
      }
    } finally {
      this.#calls.delete(message.id);
      this.#answered++;
      if (this.#calls.size === 0) this.#idle();
    }
  }

  async #run(
    { method, args }: CallMessage,
    signal: AbortSignal,
    send: (part: AnswerContent) => void,
  ): Promise<unknown> {
    const { model } = this.#options;
    if (!callable.includes(method)) {
      throw new UsageError(
        `cluster: a gateway called ${JSON.stringify(method)}, which this worker does not know. Use the same version of Lantern on all machines`,
      );
    }
    if (method === "generate") return await this.#generate(args, signal, send);
    if (method === "clearCache") this.#held.clear();
    const work = model[method] as (...args: unknown[]) => Promise<unknown>;
    return await work.apply(model, [...args]);
  }

  async #generate(
    args: readonly unknown[],
    signal: AbortSignal,
    send: (part: AnswerContent) => void,
  ): Promise<unknown> {
    const [tokens, options] = args as [readonly number[], GenerateOptions];
    const generation = this.#options.model.generate(tokens, { ...options, signal });
    for await (const event of generation.tokens()) {
      checkGivenUp(signal);
      send({ event });
    }
    const result = await generation.result;
    checkGivenUp(signal);
    const { timings } = result;
    this.#held.add([...tokens, ...result.tokenIds]);
    this.#tokensPerSecond = mixed(
      this.#tokensPerSecond,
      timings.generatedTokens,
      timings.generatedMs,
    );
    const computed = timings.promptTokens - timings.cachedTokens;
    this.#promptPerSecond = mixed(this.#promptPerSecond, computed, timings.promptMs);
    return { ...result, promptTokenIds: [] }; // the gateway knows them
  }

  #log(line: string): void {
    this.#options.log?.(`cluster: ${line}`);
  }
}

/**
 * An aborted generation ends with its text so far: an answer for a client that has gone, and for no other. A gateway that still waits is
 * told that this worker has given it up, and continues elsewhere.
 */
function checkGivenUp({ aborted, reason }: AbortSignal): void {
  if (aborted && reason instanceof RestartingError) throw reason;
}

/** A running average of tokens per second; too few tokens mean nothing. */
function mixed(before: number, tokens: number, ms: number): number {
  if (tokens < 4 || ms <= 0) return before;
  const now = (1000 * tokens) / ms;
  return before === 0 ? now : before + NEW_SHARE * (now - before);
}
