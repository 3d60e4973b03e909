// The worker's side of batches: takes lines of its model from the queue, as many as it computes at a time, and writes each answer once. A
// gateway has one for each model, too, which takes lines for workers that cannot (browser tabs; cluster-model.ts gives them to these).
//
// A line is acknowledged after its answer is stored, and NATS gives it to another worker if this one is silent about it for a while. The
// answer of a line is the first that was stored; NATS refuses a second one, by its id and by its subject. A line that three workers took and
// did not answer is an error (their processes ended, or their engines), and so is one that ten browser tabs were closed with: people close
// tabs, so that proves less. Before that its last worker or tab computes it alone: so no line is blamed for another's crash.

import type { Consumer, JetStreamClient, JetStreamManager, JsMsg } from "@nats-io/jetstream";
import { Backoff, pause, retry, type Waits } from "../../src/base/backoff.ts";
import { messageOf } from "../../src/base/errors.ts";
import type { LineAnswer, LineId } from "../batch/batch.ts";
import type { Answerer } from "../batch/runner.ts";
import { refusal } from "./line-queue.ts";
import {
  answerStream,
  lineAckMs,
  lineOf,
  lineStream,
  lineSubjects,
  loadJetStream,
  modelKey,
  openStreams,
  urlHeader,
} from "./line-streams.ts";
import { checkPayload, type NatsConnection } from "./peer.ts";
import { ageOf, type StoreWatch, watchStore } from "./store-watch.ts";
import { encode } from "./wire.ts";

export interface LineWorkerOptions {
  readonly connection: NatsConnection;
  readonly modelId: string;
  /** The fingerprint of the model whose lines it takes: several models can have this name (model-fingerprint.ts). */
  readonly fingerprint: string;
  /** Computes a line. */
  readonly answerer: Answerer;
  /** Lines at a time; may change at any time. */
  readonly capacity: () => number;
  /** Called with the number of running lines. */
  readonly onLoad?: (lines: number) => void;
  readonly log: (line: string) => void;
  /** For tests: how long a worker may be silent about a line. */
  readonly ackMs?: number;
}

/** Workers that may take a line, and tabs that may be closed with it. */
const MOST_WORKERS = 3;
const MOST_TABS = 10;
/** Headers of a line that was given back: the workers that took it and count, and the tabs that were closed with it. */
const workersHeader = "Lantern-Workers";
const tabsHeader = "Lantern-Tabs";
/** How long a worker waits for a line or for free capacity at a time (stop() waits for that), and after an error. */
const WAIT_MS = 1000;
const PAUSE_MS = 1000;
/** Back-off while NATS cannot be asked, or cannot store. */
const waits: Waits = { firstMs: PAUSE_MS, mostMs: 10_000, tries: Infinity };

export class LineWorker {
  readonly #options: LineWorkerOptions;
  readonly #stop = new AbortController();
  readonly #running = new Set<Promise<void>>();
  readonly #loop: Promise<void>;
  readonly #watch: StoreWatch;
  /** The opened queue; undefined: it is to be opened. */
  #parts: Parts | undefined;
  /** The age of the queue that was opened last. */
  #age: string | undefined;
  /** The last logged reason why no lines can be taken. */
  #problem = "";

  constructor(options: LineWorkerOptions) {
    this.#options = options;
    this.#watch = watchStore(options.connection, () => this.#checkStore());
    this.#loop = this.#run();
  }

  /** Gives back the running lines. */
  async stop(): Promise<void> {
    this.#stop.abort(new Error("the worker is stopping"));
    this.#watch.stop();
    await this.#loop;
    await Promise.all(this.#running);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    const { log } = this.#options;
    const backoff = new Backoff(waits);
    while (!signal.aborted && !this.#options.connection.isClosed()) {
      try {
        await this.#place(); // without free capacity, JetStream is not needed
        if (signal.aborted) return;
        const parts = await this.#open();
        if (this.#age !== undefined && this.#age !== parts.age) {
          log("cluster: NATS has lost its lines of batches. Their gateways queue them again");
        }
        this.#age = parts.age;
        this.#parts = parts;
        this.#problem = "";
        while (!signal.aborted && this.#parts === parts) {
          await this.#next(parts);
          backoff.succeeded();
        }
      } catch (error) {
        if (signal.aborted || this.#options.connection.isClosed()) return;
        const problem = messageOf(error);
        if (problem !== this.#problem) log(`cluster: batches: ${problem}`);
        this.#problem = problem;
        await backoff.failed(signal);
      }
    }
  }

  async #open(): Promise<Parts> {
    const { connection, modelId, fingerprint, log, ackMs = lineAckMs } = this.#options;
    const { jetstream, AckPolicy } = await loadJetStream();
    const manager = await openStreams(connection, log);
    const key = modelKey(modelId, fingerprint);
    const name = `lines-${key}`;
    const { created } = await manager.consumers.info(lineStream, name).catch(() =>
      manager.consumers.add(lineStream, {
        durable_name: name,
        filter_subject: lineSubjects.linesOf(key),
        ack_policy: AckPolicy.Explicit,
        ack_wait: ackMs * 1_000_000,
        max_ack_pending: 100_000,
      }),
    );
    const client = jetstream(connection);
    const consumer = await client.consumers.get(lineStream, name);
    return { client, manager, consumer, name, age: String(created) };
  }

  /** NATS came back without the queue, or with one that another worker has made: it is opened again. */
  async #checkStore(): Promise<void> {
    const parts = this.#parts;
    if (!parts) return;
    if ((await ageOf(parts.manager, lineStream, parts.name)) === parts.age) return;
    this.#parts = undefined;
  }

  /** Whether the queue is still the one that a line came from: in another one, its number is another line's. */
  async #isSame({ age }: Parts): Promise<boolean> {
    await this.#watch.sure();
    return this.#parts?.age === age;
  }

  /** Waits for free capacity, or for the end. */
  async #place(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted && this.#running.size >= this.#options.capacity()) {
      await Promise.race([...this.#running, pause(WAIT_MS, signal)]);
    }
  }

  /** Waits for free capacity and a line, and begins it. */
  async #next(parts: Parts): Promise<void> {
    await this.#place();
    if (this.#stop.signal.aborted) return;
    const message = await parts.consumer.next({ expires: WAIT_MS });
    if (!message) return;
    // The last worker of a line computes it alone (see above): after all others, and before any more are taken.
    const isLast = tries(message) >= MOST_WORKERS || closedTabs(message) >= MOST_TABS - 1;
    const before = isLast ? Promise.all(this.#running) : Promise.resolve([]);
    const work = this.#take(parts, message, before).finally(() => {
      this.#running.delete(work);
      this.#options.onLoad?.(this.#running.size);
    });
    this.#running.add(work);
    this.#options.onLoad?.(this.#running.size);
    if (isLast) await Promise.race([work, aborted(this.#stop.signal)]);
  }

  async #take(parts: Parts, message: JsMsg, before: Promise<unknown>): Promise<void> {
    const { log, ackMs = lineAckMs } = this.#options;
    const line = lineOf(message.subject);
    const alive = setInterval(() => {
      if (this.#watch.isSure && this.#parts?.age === parts.age) message.working();
    }, ackMs / 3);
    try {
      const known = message.redelivered && (await this.#isAnswered(parts, line));
      await before;
      if (!known) {
        const answer = await this.#answer(parts, message, line);
        const tabs = closedTabs(message) + (answer?.lost === "tab" ? 1 : 0);
        if (tabs >= MOST_TABS) {
          await this.#store(parts, line, await this.#bury(parts, message, "browser tabs", tabs));
        } else if (!answer || answer.lost === "tab") {
          return await this.#giveBack(parts, message, tabs);
        } else if (answer.lost) {
          // This try counts, and the line comes again in a moment, here or elsewhere: the next try may be on another engine, and the last one is alone.
          if (await this.#isSame(parts)) message.nak(PAUSE_MS);
          return;
        } else {
          await this.#store(parts, line, answer);
        }
      }
      if (await this.#isSame(parts)) await message.ackAck({ timeout: ackMs });
    } catch (error) {
      // The line is not acknowledged, so it comes again, here or elsewhere.
      log(`cluster: line ${line.place + 1} of batch ${line.batch}: ${messageOf(error)}`);
    } finally {
      clearInterval(alive);
    }
  }

  /** undefined: this worker is stopping, or does not compute any more. */
  async #answer(parts: Parts, message: JsMsg, line: LineId): Promise<LineAnswer | undefined> {
    const { answerer } = this.#options;
    const { signal } = this.#stop;
    if (tries(message) > MOST_WORKERS) {
      return await this.#bury(parts, message, "workers", MOST_WORKERS);
    }
    const url = message.headers?.get(urlHeader) ?? "";
    const backoff = new Backoff(waits);
    while (!signal.aborted) {
      const answer = await answerer
        .answer(url, Uint8Array.from(message.data), signal, line)
        .catch((error: unknown) => (signal.aborted ? undefined : refusal(500, messageOf(error))));
      if (!answer || signal.aborted) return undefined;
      // No free sequence now: another try here does not count as another worker.
      if (answer.status !== 429 && answer.status !== 503) return answer;
      if (this.#options.capacity() === 0) return undefined;
      await backoff.failed(signal);
    }
    return undefined;
  }

  /** Buries a line that has used up its tries: its request is kept, and its answer gives the reason. */
  async #bury(
    { client }: Parts,
    { subject, data }: JsMsg,
    who: string,
    count: number,
  ): Promise<LineAnswer> {
    const line = lineOf(subject);
    const msgID = `dead.${line.batch}.${line.place}`;
    await client.publish(lineSubjects.dead(line), data, { msgID });
    return refusal(
      500,
      `this request was given to ${count} ${who}, and each of them ended before there was an answer. It is not given to another: it may be what ends them`,
    );
  }

  /** As a new message: this worker did not fail at it, so it does not count; workers before it, and closed tabs, still do. */
  async #giveBack(parts: Parts, message: JsMsg, tabs: number): Promise<void> {
    const { subject, data } = message;
    if (this.#stop.signal.aborted) await this.#loop; // otherwise this worker would get it again
    if (!(await this.#isSame(parts))) return; // its gateway queues it again
    const { headers: newHeaders } = await import("@nats-io/transport-node");
    const headers = message.headers ?? newHeaders();
    headers.delete("Nats-Msg-Id"); // it tells a message from its copies
    headers.set(workersHeader, String(tries(message) - 1));
    headers.set(tabsHeader, String(tabs));
    await parts.client.publish(subject, data, { headers });
    await message.ackAck();
  }

  /** False if NATS cannot be asked: the line is computed once more, which costs time but not a try. */
  async #isAnswered({ manager }: Parts, line: LineId): Promise<boolean> {
    const query = { last_by_subj: lineSubjects.answer(line) };
    const found = await manager.streams.getMessage(answerStream, query).catch(() => null);
    return found !== null;
  }

  /**
   * Exactly once: the subject of an answer holds one message. While it cannot be stored, because NATS's disk is full or it has no leader, this
   * worker keeps it and tries again: no computed answer is lost, and no line is to blame.
   */
  async #store({ client }: Parts, line: LineId, answer: LineAnswer): Promise<void> {
    const { connection, log } = this.#options;
    const { signal } = this.#stop;
    const { JetStreamApiError, JetStreamApiCodes } = await loadJetStream();
    let bytes = encode(answer);
    try {
      checkPayload(connection, bytes, "the answer");
    } catch (error) {
      bytes = encode(refusal(500, messageOf(error)));
    }
    const msgID = `${line.batch}.${line.place}`;
    const expect = { lastSubjectSequence: 0 };
    const publish = async (): Promise<void> => {
      try {
        await client.publish(lineSubjects.answer(line), bytes, { msgID, expect, retries: 5 });
      } catch (error) {
        const isThere =
          error instanceof JetStreamApiError &&
          error.code === JetStreamApiCodes.StreamWrongLastSequence;
        if (!isThere) throw error;
      }
    };
    let hasSaid = false;
    const onFailure = (error: unknown): void => {
      if (connection.isClosed()) throw error;
      if (!hasSaid) log(`cluster: an answer waits until it can be stored: ${messageOf(error)}`);
      hasSaid = true;
    };
    await retry(publish, waits, { signal, onFailure });
  }
}

interface Parts {
  readonly client: JetStreamClient;
  readonly manager: JetStreamManager;
  readonly consumer: Consumer;
  /** The consumer's. */
  readonly name: string;
  readonly age: string;
}

/** The number of workers that got this line, this one included. */
function tries(message: JsMsg): number {
  return message.info.deliveryCount + counted(message, workersHeader);
}

/** The number of tabs that were closed with it. */
function closedTabs(message: JsMsg): number {
  return counted(message, tabsHeader);
}

function counted({ headers }: JsMsg, name: string): number {
  const count = Number(headers?.get(name) ?? 0);
  return Number.isSafeInteger(count) && count > 0 ? count : 0;
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
