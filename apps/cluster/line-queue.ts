// The gateway's side of batches: each line becomes a message of a work queue, and its answer comes from the stream of answers. Both
// outlast this process: a gateway that is started again asks for the same lines, finds the answers that came meanwhile, and queues no
// line twice. The state of batches stays in the gateway's own store (apps/batch).

import type { JetStreamClient, JetStreamManager } from "@nats-io/jetstream";
import { type Poll, poll, retry, type Waits } from "../../src/base/backoff.ts";
import { messageOf } from "../../src/base/errors.ts";
import { BatchOverError, type LineAnswer, type LineId } from "../batch/batch.ts";
import type { Answerer } from "../batch/runner.ts";
import {
  answerStream,
  lineStream,
  lineSubjects,
  loadJetStream,
  modelKey,
  openStreams,
  urlHeader,
} from "./line-streams.ts";
import { checkPayload, type NatsConnection } from "./peer.ts";
import { ageOf, type StoreWatch, watchStore } from "./store-watch.ts";
import { decode } from "./wire.ts";

export interface LineQueueOptions {
  readonly connection: NatsConnection;
  /** Answers lines that belong to no worker: those whose model does not exist. */
  readonly own: Answerer;
  /** The model of a request's body; undefined: it names a model that does not exist. null: unknown, since no worker is there yet. */
  readonly modelOf: (body: Uint8Array) => string | undefined | null;
  /** The model of this name that computes a batch (model-fingerprint.ts), the same for all of its lines; undefined: no worker was there yet. */
  readonly fingerprintOf: (batch: string, model: string) => Promise<string | undefined>;
  /** The number of lines that all workers compute at a time. */
  readonly capacity: () => number;
  readonly log: (line: string) => void;
  /** For tests: how long a line may wait before the queue is checked for it. */
  readonly sureMs?: number;
}

/** Lines in the queue at a time, for each that is computed: workers never wait for the gateway. */
const AHEAD = 2;
const LEAST = 64;
const MOST = 4096;
/** The interval at which the stream is asked for missed answers. */
const LOOK_MS = 5000;
/** The interval of checks that a line is still in the queue: NATS may have lost it with its disk, or a user removed it. */
const SURE_MS = 60_000;
/** Back-off after the streams could not be opened. */
const waits: Waits = { firstMs: 1000, mostMs: 30_000, tries: Infinity };

interface Waiting {
  readonly line: LineId;
  /** The key of its model. */
  readonly key: string;
  readonly since: number;
  /** The last time at which it was known to be in the queue; undefined: it is not there yet. */
  sureAt: number | undefined;
  resolve(answer: LineAnswer): void;
}

interface Opened {
  readonly client: JetStreamClient;
  readonly manager: JetStreamManager;
}

export class LineQueue implements Answerer {
  readonly #options: LineQueueOptions;
  readonly #end = new AbortController();
  readonly #opened: Promise<Opened>;
  readonly #waiting = new Map<string, Waiting>();
  readonly #looking: Poll;
  readonly isElsewhere = true;
  #most = LEAST;
  #manager: JetStreamManager | undefined;
  readonly #watch: StoreWatch;
  /** The ages of the streams when they were opened. */
  #ages: readonly (string | undefined)[] = [];
  #stop: () => void = () => {};

  constructor(options: LineQueueOptions) {
    this.#options = options;
    this.#opened = this.#openOnce();
    this.#opened.catch(() => {}); // it was closed before
    this.#watch = watchStore(options.connection, () => this.#checkStore());
    const every = Math.min(LOOK_MS, options.sureMs ?? SURE_MS);
    const look = (): Promise<void> => this.#look(every);
    this.#looking = poll(look, { everyMs: every, mostMs: LOOK_MS });
  }

  /** Never fewer than before: lines that are in the queue stay there when a worker goes. */
  parallel(): number {
    this.#most = Math.min(MOST, Math.max(this.#most, AHEAD * this.#options.capacity()));
    return this.#most;
  }

  async answer(
    url: string,
    body: Uint8Array<ArrayBuffer>,
    signal: AbortSignal,
    line: LineId,
  ): Promise<LineAnswer> {
    const { own, modelOf, fingerprintOf, connection } = this.#options;
    const model = modelOf(body);
    if (model === undefined) return await own.answer(url, body, signal, line);
    if (model === null) return refusal(503, "there is no worker yet"); // as a server that is full: the runner tries again
    let fingerprint: string | undefined;
    try {
      fingerprint = await fingerprintOf(line.batch, model);
    } catch (error) {
      return refusal(503, messageOf(error));
    }
    if (fingerprint === undefined) return refusal(503, "there is no worker yet");
    const key = modelKey(model, fingerprint);
    const opened = await Promise.race([this.#opened, rejection(signal)]).catch(messageOf);
    if (typeof opened === "string") {
      signal.throwIfAborted();
      return refusal(503, opened);
    }
    const { promise, resolve } = Promise.withResolvers<LineAnswer>();
    const subject = lineSubjects.answer(line);
    const since = performance.now();
    const waiting: Waiting = { line, key, since, sureAt: undefined, resolve };
    this.#waiting.set(subject, waiting);
    let queuedAs: number | undefined;
    try {
      const known = await this.#answered(opened.manager, line);
      if (known) return known;
      try {
        checkPayload(connection, body, "a request");
      } catch (error) {
        return refusal(413, messageOf(error));
      }
      const { headers } = await import("@nats-io/transport-node");
      // New headers each time: the client writes a message's id into them.
      const how = () => {
        const route = headers();
        route.set(urlHeader, url);
        return { headers: route, retries: 5 };
      };
      const to = lineSubjects.line(key, line);
      const msgID = `${line.batch}.${line.place}`;
      let queued = await opened.client.publish(to, body, { ...how(), msgID });
      // NATS remembers the id of a line even after it has lost the line.
      if (queued.duplicate && (await this.#isGone(opened.manager, key, line))) {
        queued = await opened.client.publish(to, body, how());
      }
      queuedAs = queued.seq;
      waiting.sureAt = performance.now();
      return await Promise.race([promise, rejection(signal)]);
    } catch (error) {
      if (signal.aborted) {
        const isOver = signal.reason instanceof BatchOverError;
        if (queuedAs !== undefined && isOver) await this.#drop(opened.manager, queuedAs);
        throw signal.reason;
      }
      return refusal(503, `the line could not be queued: ${messageOf(error)}`);
    } finally {
      this.#waiting.delete(subject);
    }
  }

  /** Lines stay in the queue, and are answered. */
  async close(): Promise<void> {
    this.#end.abort(new Error("the queue of lines was closed"));
    this.#looking.stop();
    this.#watch.stop();
    this.#stop();
    await this.#opened.catch(() => {});
  }

  /** Tries repeatedly: JetStream may have no leader for a while, or be slower than the time-out of its client. */
  async #openOnce(): Promise<Opened> {
    const { connection, log } = this.#options;
    const { signal } = this.#end;
    const onFailure = (error: unknown): void => {
      if (connection.isClosed()) throw error;
      log(`cluster: lines of batches wait: ${messageOf(error)}`);
    };
    return await retry(() => this.#open(), waits, { signal, onFailure });
  }

  async #open(): Promise<Opened> {
    const { connection, log } = this.#options;
    const { jetstream, DeliverPolicy } = await loadJetStream();
    const manager = await openStreams(connection, log);
    const client = jetstream(connection);
    const consumer = await client.consumers.get(answerStream, {
      filter_subjects: lineSubjects.answers,
      deliver_policy: DeliverPolicy.New,
    });
    const messages = await consumer.consume({
      callback: ({ subject, data }) => this.#take(subject, data),
    });
    const ages = await agesOf(manager);
    this.#stop();
    this.#stop = () => messages.stop();
    if (this.#end.signal.aborted) messages.stop();
    this.#manager = manager;
    this.#ages = ages;
    return { client, manager };
  }

  /** NATS came back without its streams: they are made again, and the lines that wait are queued again. */
  async #checkStore(): Promise<void> {
    const manager = this.#manager;
    if (!manager) return; // they are being opened
    const ages = await agesOf(manager);
    if (ages.every((age, i) => age === this.#ages[i])) return;
    const before = this.#ages;
    await this.#open();
    // A server that has just started may not know its streams yet.
    if (this.#end.signal.aborted || this.#ages.every((age, i) => age === before[i])) return;
    const { log } = this.#options;
    log(
      `cluster: NATS has lost its lines and answers of batches: ${this.#waiting.size} lines that wait here are queued again`,
    );
    for (const { resolve } of [...this.#waiting.values()]) {
      resolve(refusal(503, "NATS has lost the line")); // as above: the runner tries again
    }
  }

  #take(subject: string, data: Uint8Array): void {
    const waiting = this.#waiting.get(subject);
    if (!waiting) return; // of another gateway
    waiting.resolve(readAnswer(data));
  }

  async #answered(manager: JetStreamManager, line: LineId): Promise<LineAnswer | undefined> {
    const query = { last_by_subj: lineSubjects.answer(line) };
    const found = await manager.streams.getMessage(answerStream, query);
    return found ? readAnswer(found.data) : undefined;
  }

  /** Whether the line is neither queued nor answered. False if NATS cannot be asked. */
  async #isGone(manager: JetStreamManager, key: string, line: LineId): Promise<boolean> {
    try {
      const query = { last_by_subj: lineSubjects.line(key, line) };
      if (await manager.streams.getMessage(lineStream, query)) return false;
      return !(await this.#answered(manager, line)); // the answer was stored before the line left the queue
    } catch {
      return false;
    }
  }

  /** Looks for answers that the consumer missed while NATS was away, and for lines that NATS has lost: seldom, and then with a request or two for each line. */
  async #look(every: number): Promise<void> {
    const manager = this.#manager;
    if (!manager || !this.#watch.isSure) return;
    const { log, sureMs = SURE_MS } = this.#options;
    const now = performance.now();
    for (const waiting of [...this.#waiting.values()]) {
      const { line, key, since, sureAt = now, resolve } = waiting;
      if (now - since < every || this.#end.signal.aborted) continue;
      const known = await this.#answered(manager, line).catch(() => undefined);
      if (known) resolve(known);
      if (known || now - sureAt < sureMs) continue;
      waiting.sureAt = now;
      if (!(await this.#isGone(manager, key, line)) || !this.#watch.isSure) continue;
      log(
        `cluster: line ${line.place + 1} of batch ${line.batch} has left the queue without an answer, and is queued again`,
      );
      resolve(refusal(503, "the line has left the queue")); // as above: the runner tries again
    }
  }

  /** Not by its subject: NATS 2.9 lets a consumer skip messages behind those that are purged by subject. */
  async #drop(manager: JetStreamManager, seq: number): Promise<void> {
    await manager.streams.deleteMessage(lineStream, seq, false).catch(() => {
      // A worker has answered it, or gave it back under another number: then it is computed in vain.
    });
  }
}

function agesOf(manager: JetStreamManager): Promise<(string | undefined)[]> {
  return Promise.all([lineStream, answerStream].map((name) => ageOf(manager, name)));
}

/** An answer as a worker stored it; an unreadable one is an error of its line only. */
export function readAnswer(data: Uint8Array): LineAnswer {
  try {
    const answer = decode(data) as Partial<LineAnswer> | null;
    const { status, requestId, body } = answer ?? {};
    if (Number.isInteger(status) && typeof requestId === "string" && body !== undefined) {
      return { status: status!, requestId, body };
    }
    return refusal(500, "the stored answer has not the form of one");
  } catch (error) {
    return refusal(500, messageOf(error));
  }
}

/** In the form of OpenAI's errors. */
export function refusal(status: number, message: string): LineAnswer {
  const error = { message, type: "server_error", param: null, code: "no_answer" };
  return { status, requestId: "", body: { error } };
}

function rejection(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const fail = (): void => reject(signal.reason);
    if (signal.aborted) fail();
    signal.addEventListener("abort", fail, { once: true });
  });
}
