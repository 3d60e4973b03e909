// The caller's side of the RPC between threads: requests out, events and replies in. Knows threads and messages, not
// models.

import { atMost } from "../base/at-most.ts";
import { factsToError } from "../base/error-facts.ts";
import {
  DeviceLostError,
  DeviceMemoryError,
  DisposedError,
  HangError,
  messageOf,
  RestartingError,
  UsageError,
  WorkerError,
} from "../base/errors.ts";
import type { EngineThread } from "../platform/platform.ts";
import {
  ABORT_FLAGS,
  ARRIVALS,
  BEATS,
  type FromEngine,
  type Methods,
  type MethodTable,
  SHARED_WORDS,
  urgentMethods,
} from "./protocol.ts";
import { HANG_SECONDS, Watch } from "./watch.ts";

interface Pending {
  resolve(result: unknown): void;
  reject(error: Error): void;
  onEvent: ((event: never) => void) | undefined;
}

/**
 * The time that dispose() gives the engine to free its memory itself. In the middle of a long batch it cannot answer; the end of its
 * thread frees the memory as well.
 */
const farewellMs = 500;
/**
 * The time for which it waits for an engine that has begun to end. One that computes on a GPU waits for its batch, even on a slow GPU:
 * if its thread were ended before, Dawn would abort the process.
 */
const endingMs = 30_000;
/** The time in which a thread must end. A thread inside machine code cannot end; it is then abandoned. */
const terminateMs = 5000;

/** The method that every thread has. */
interface Disposable {
  dispose: { params: undefined; result: undefined; event: never };
}

/** Calls to the engine's thread. */
export type EngineLine = Line<Methods>;

export interface LineOptions {
  /** Name of the thread, for messages (default: the engine's thread). */
  what?: string;
  /** Advice for the loss of that thread, for messages. */
  advice?: string;
  /** Seconds without a sign of life after which the thread counts as hung (default 60; 0: it is not watched). */
  hangSeconds?: number | undefined;
  /** The thread handles one request after the other, so it hung at the first one that is not answered. */
  isSerial?: boolean;
  /** Called when the thread died, or hung and was terminated. */
  onDeath?: (error: WorkerError) => void;
  /** Called when the thread takes no more requests: it died, or was disposed of. */
  onEnd?: () => void;
  /** Called with warnings that the thread sends by itself. */
  onWarning?: (warning: string) => void;
}

interface CallOptions<Event> {
  onEvent?: (event: Event) => void;
  signal?: AbortSignal;
  /** Nobody waits for it: batches of background work are not given up for it. Default: false. */
  isBackground?: boolean;
}

/** The interval in which isAlive() checks for a sign of life. */
const lookMs = 20;

export class Line<T extends MethodTable<T> & Disposable> {
  readonly #thread: EngineThread;
  readonly #watch: Watch;
  readonly #pending = new Map<number, Pending>();
  readonly #flags: Int32Array | undefined =
    typeof SharedArrayBuffer === "undefined"
      ? undefined
      : new Int32Array(new SharedArrayBuffer(4 * SHARED_WORDS));
  #nextId = 1;
  /** Requests for work that the thread itself has asked for. */
  #ownWork = 0;
  /** Why no more requests are taken. */
  #closed: Error | undefined;
  #disposal: Promise<void> | undefined;
  /** The thread was told to end, and has begun to. */
  #isEnding = false;
  readonly #onDeath: (error: WorkerError) => void;
  /** The end of a thread that lost its device. */
  #farewell: Promise<void> | undefined;
  readonly #onEnd: (() => void) | undefined;
  readonly #onWarning: ((warning: string) => void) | undefined;

  constructor(thread: EngineThread, options: LineOptions = {}) {
    const { what = "the engine's thread", advice = "Open the model again" } = options;
    const { hangSeconds = HANG_SECONDS, onDeath = () => {}, isSerial = false } = options;
    const flags = this.#flags;
    this.#thread = thread;
    this.#onEnd = options.onEnd;
    this.#onWarning = options.onWarning;
    const die = (error: WorkerError): void => {
      if (this.#closed) return;
      onDeath(error); // first, so that a retry finds another thread
      this.#close(error, isSerial ? new RestartingError(error.message, { cause: error }) : error);
    };
    this.#watch = new Watch({
      seconds: hangSeconds,
      beats: flags && (() => Atomics.load(flags, BEATS)),
      ping: () => thread.post({ id: 0, method: "ping" }),
      onHang: (seconds) => {
        die(
          new HangError(
            `${what} did not respond for ${seconds} s and was stopped; its running requests are lost. ${advice}`,
          ),
        );
        void thread.terminate();
      },
    });
    this.#onDeath = onDeath;
    thread.onMessage((message) => this.#receive(message as FromEngine));
    thread.onFailure((cause) =>
      die(
        new WorkerError(
          `${what} stopped unexpectedly (${cause.message}); its running requests are lost. ${advice}`,
          {
            cause,
          },
        ),
      ),
    );
    if (flags) thread.post({ id: 0, method: "share", flags });
    thread.unref();
  }

  /** Why the thread is gone; undefined if it is not. */
  get closed(): Error | undefined {
    return this.#closed;
  }

  /** Whether no request waits for an answer, but for the thread's own work. */
  get isIdle(): boolean {
    return !this.#closed && this.#pending.size === this.#ownWork;
  }

  /** Terminates the thread. Resolves when it is gone, or does not seem to end. */
  async terminate(): Promise<void> {
    await this.#farewell;
    await atMost(terminateMs, this.#thread.terminate());
  }

  /** Whether the thread gives a sign of life within `ms`: an answer to `ask`, or progress in something long. */
  async isAlive(ask: () => Promise<unknown>, ms: number): Promise<boolean> {
    const before = this.#watch.signs;
    let answered = false;
    ask().then(
      () => {
        answered = true;
      },
      () => {},
    );
    for (let waited = 0; ; waited += lookMs) {
      if (this.#closed) return false;
      if (answered || this.#watch.signs !== before) return true;
      if (waited >= ms) return false;
      await pause(lookMs);
    }
  }

  /** Sends a request. The signal asks the engine to stop; its answer to that is the result. */
  call<M extends keyof T & string>(
    method: M,
    params: T[M]["params"],
    options: CallOptions<T[M]["event"]> = {},
  ): Promise<T[M]["result"]> {
    if (this.#closed) return Promise.reject(this.#closed);
    const id = this.#nextId++;
    const abort = () => {
      if (this.#flags) Atomics.store(this.#flags, id % ABORT_FLAGS, id);
      this.#thread.post({ id, method: "abort" });
    };
    const { signal, onEvent, isBackground = false } = options;
    const isUrgent = !isBackground && urgentMethods.has(method);
    const reply = new Promise<T[M]["result"]>((resolve, reject) => {
      this.#pending.set(id, { resolve: resolve as (result: unknown) => void, reject, onEvent });
    });
    // Only a thread with work keeps the process alive.
    if (this.#pending.size === 1) {
      this.#thread.ref();
      this.#watch.start();
    }
    const arrive = (by: number) => {
      if (isUrgent && this.#flags) Atomics.add(this.#flags, ARRIVALS, by);
    };
    arrive(1);
    try {
      this.#thread.post({ id, method, params, aborted: signal?.aborted ?? false, isUrgent });
    } catch (cause) {
      arrive(-1);
      this.#settle(id)?.reject(notSendable(method, cause));
    }
    signal?.addEventListener("abort", abort, { once: true });
    return reply.finally(() => signal?.removeEventListener("abort", abort));
  }

  /** Lets the engine free its memory, then ends the thread; requests that still run are rejected. */
  dispose(): Promise<void> {
    this.#disposal ??= this.#dispose();
    return this.#disposal;
  }

  async #dispose(): Promise<void> {
    if (this.#closed) return;
    const running = [...this.#pending.keys()];
    const farewell = this.call("dispose", undefined).catch(() => undefined);
    this.#closed = new DisposedError("the model");
    // Now: the engine stops running requests on its side, and might answer them as if they had been aborted.
    for (const id of running) this.#settle(id)?.reject(this.#closed);
    await atMost(farewellMs, farewell);
    if (this.#isEnding) await atMost(endingMs, farewell);
    this.#close(this.#closed);
    await this.terminate();
  }

  /**
   * The device that the thread computes on is gone. It ends by itself, since a thread that is terminated while it still waits for its
   * device takes the whole process with it: Dawn aborts.
   */
  #lose(why: string, outOfMemory: boolean): void {
    if (this.#closed) return;
    const error = outOfMemory ? new DeviceMemoryError(why) : new DeviceLostError(why);
    if (!outOfMemory) this.#onWarning?.(why);
    const running = [...this.#pending.keys()];
    const ended = this.call("dispose", undefined).catch(() => undefined);
    this.#closed = error;
    this.#farewell = atMost(terminateMs, ended).then(() => this.#close(error));
    this.#onDeath(error); // first, so that a retry finds another thread
    for (const id of running) this.#settle(id)?.reject(error);
  }

  #receive(message: FromEngine): void {
    this.#watch.hear();
    if (message.kind === "pong") return;
    if (message.kind === "lost") {
      this.#lose(message.why, message.outOfMemory);
      return;
    }
    if (message.kind === "hasWork") {
      void this.#askForOwnWork();
      return;
    }
    if (message.kind === "ending") {
      this.#isEnding = true;
      return;
    }
    if (message.kind === "warning") {
      this.#onWarning?.(message.warning);
      return;
    }
    if (message.kind === "events") {
      for (const { id, event } of message.events) {
        const onEvent = this.#pending.get(id)?.onEvent as ((event: unknown) => void) | undefined;
        onEvent?.(event);
      }
      return;
    }
    const pending = this.#pending.get(message.id);
    if (!pending) return;
    this.#settle(message.id);
    if (message.kind === "result") pending.resolve(message.result);
    else pending.reject(factsToError(message.error));
  }

  /** As a request, which keeps the process alive: Dawn aborts where a thread ends that waits for its device. */
  async #askForOwnWork(): Promise<void> {
    this.#ownWork++;
    try {
      await this.call("ownWork" as keyof T & string, {} as never);
    } catch {
      // The thread has ended.
    } finally {
      this.#ownWork--;
    }
  }

  /** Takes a request off the list, because it is about to be answered. */
  #settle(id: number): Pending | undefined {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (this.#pending.size === 0) this.#rest();
    return pending;
  }

  #rest(): void {
    this.#thread.unref();
    this.#watch.stop();
  }

  /** `others`: the error for all requests but the first. */
  #close(reason: Error, others: Error = reason): void {
    this.#watch.stop();
    this.#closed ??= reason; // a thread that ends while it is disposed of did not die
    let error: Error = this.#closed;
    for (const pending of this.#pending.values()) {
      pending.reject(error);
      if (this.#closed === reason) error = others;
    }
    this.#pending.clear();
    this.#onEnd?.();
  }
}

/** A message can carry only data, no functions or promises. */
function notSendable(method: string, cause: unknown): UsageError {
  const reason = messageOf(cause);
  return new UsageError(`${method}: an argument or option is not plain data: ${reason}`, { cause });
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
