// The gateway's side of batches: each line becomes a message of a work queue, and its answer comes from the stream of answers. Both
// outlast this process: a gateway that is started again asks for the same lines, finds the answers that came meanwhile, and queues no
// line twice. The state of batches stays in the gateway's own store (src/batch).

import type { JetStreamClient, JetStreamManager } from "@nats-io/jetstream";
import { messageOf } from "../base/errors.ts";
import { BatchOverError, type LineAnswer, type LineId } from "../batch/batch.ts";
import type { Answerer } from "../batch/runner.ts";
import {
  answerStream,
  lineStream,
  lineSubjects,
  loadJetStream,
  openStreams,
  urlHeader,
} from "./line-streams.ts";
import { checkPayload, type NatsConnection } from "./peer.ts";
import { decode } from "./wire.ts";

export interface LineQueueOptions {
  readonly connection: NatsConnection;
  /** Answers lines that belong to no worker: those whose model does not exist. */
  readonly own: Answerer;
  /** The model of a request's body; undefined: it names one that is not there. null: nobody knows yet, since no worker is there. */
  readonly modelOf: (body: Uint8Array) => string | undefined | null;
  /** How many lines all workers compute at a time. */
  readonly capacity: () => number;
  readonly log: (line: string) => void;
}

/** Lines in the queue at a time, for each that is computed: workers never wait for the gateway. */
const AHEAD = 2;
const LEAST = 64;
const MOST = 4096;
/** How often the stream is asked for answers that were not noticed. */
const LOOK_MS = 5000;
/** After the streams could not be opened. */
const RETRY_MS = 1000;

interface Waiting {
  readonly line: LineId;
  readonly since: number;
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
  readonly #timer: ReturnType<typeof setInterval>;
  readonly isElsewhere = true;
  #most = LEAST;
  #manager: JetStreamManager | undefined;
  #stop: () => void = () => {};

  constructor(options: LineQueueOptions) {
    this.#options = options;
    this.#opened = this.#openOnce();
    this.#opened.catch(() => {}); // it was closed before
    this.#timer = setInterval(() => void this.#look(), LOOK_MS);
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
    const { own, modelOf, connection } = this.#options;
    const model = modelOf(body);
    if (model === undefined) return await own.answer(url, body, signal, line);
    if (model === null) return refusal(503, "there is no worker yet");
    const opened = await Promise.race([this.#opened, rejection(signal)]).catch(messageOf);
    if (typeof opened === "string") {
      signal.throwIfAborted();
      return refusal(503, opened); // as a server that is full: the runner tries again
    }
    const { promise, resolve } = Promise.withResolvers<LineAnswer>();
    const subject = lineSubjects.answer(line);
    this.#waiting.set(subject, { line, since: performance.now(), resolve });
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
      const route = headers();
      route.set(urlHeader, url);
      const msgID = `${line.batch}.${line.place}`;
      const how = { msgID, headers: route, retries: 5 };
      queuedAs = (await opened.client.publish(lineSubjects.line(model, line), body, how)).seq;
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
    clearInterval(this.#timer);
    this.#stop();
    await this.#opened.catch(() => {});
  }

  /** Again and again: JetStream may have no leader for a while, or be slower than its client waits. */
  async #openOnce(): Promise<Opened> {
    const { connection, log } = this.#options;
    const { signal } = this.#end;
    for (;;) {
      try {
        return await this.#open();
      } catch (error) {
        if (signal.aborted || connection.isClosed()) throw error;
        log(`cluster: lines of batches wait: ${messageOf(error)}`);
        await Promise.race([
          new Promise((resolve) => setTimeout(resolve, RETRY_MS)),
          rejection(signal),
        ]);
      }
    }
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
    this.#stop = () => messages.stop();
    if (this.#end.signal.aborted) messages.stop();
    this.#manager = manager;
    return { client, manager };
  }

  #take(subject: string, data: Uint8Array): void {
    const waiting = this.#waiting.get(subject);
    if (!waiting) return; // of another gateway
    try {
      waiting.resolve(decode(data) as LineAnswer);
    } catch (error) {
      waiting.resolve(refusal(500, messageOf(error)));
    }
  }

  async #answered(manager: JetStreamManager, line: LineId): Promise<LineAnswer | undefined> {
    const query = { last_by_subj: lineSubjects.answer(line) };
    const found = await manager.streams.getMessage(answerStream, query);
    return found ? (decode(found.data) as LineAnswer) : undefined;
  }

  /** Answers that the consumer missed, while NATS was away: seldom, and then one question a line. */
  async #look(): Promise<void> {
    const manager = this.#manager;
    if (!manager) return;
    const now = performance.now();
    for (const { line, since, resolve } of [...this.#waiting.values()]) {
      if (now - since < LOOK_MS || this.#end.signal.aborted) continue;
      const known = await this.#answered(manager, line).catch(() => undefined);
      if (known) resolve(known);
    }
  }

  /** Not by its subject: NATS 2.9 lets a consumer skip messages behind those that are purged by subject. */
  async #drop(manager: JetStreamManager, seq: number): Promise<void> {
    await manager.streams.deleteMessage(lineStream, seq, false).catch(() => {
      // A worker has answered it, or gave it back under another number: then it is computed for nobody.
    });
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
