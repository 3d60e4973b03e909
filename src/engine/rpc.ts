// The caller's side of the line: requests out, events and replies in. Knows threads and messages, not models.

import { DisposedError, UsageError, WorkerError } from "../base/errors.ts";
import type { EngineThread } from "../platform/platform.ts";
import {
  ABORT_FLAGS,
  type FromEngine,
  factsToError,
  type Methods,
  type MethodTable,
} from "./protocol.ts";

interface Pending {
  resolve(result: unknown): void;
  reject(error: Error): void;
  onEvent: ((event: never) => void) | undefined;
}

/**
 * How long dispose() waits for the engine to free its memory itself. In the middle of a long step it cannot answer; the
 * end of its thread frees the memory as well.
 */
const farewellMs = 500;

/** What every thread at the other end of a line can do. */
interface Disposable {
  dispose: { params: undefined; result: undefined; event: never };
}

/** A line to the engine's thread. */
export type EngineLine = Line<Methods>;

export class Line<T extends MethodTable<T> & Disposable> {
  readonly #thread: EngineThread;
  readonly #pending = new Map<number, Pending>();
  readonly #flags: Int32Array | undefined =
    typeof SharedArrayBuffer === "undefined"
      ? undefined
      : new Int32Array(new SharedArrayBuffer(4 * ABORT_FLAGS));
  #nextId = 1;
  /** Why no more requests are taken. */
  #closed: Error | undefined;
  #disposal: Promise<void> | undefined;

  /** `what` it is a line to, for the message when that thread has died; `onDeath` hears of it, too. */
  constructor(
    thread: EngineThread,
    what: string = "the engine's thread",
    onDeath: () => void = () => {},
  ) {
    this.#thread = thread;
    thread.onMessage((message) => this.#receive(message as FromEngine));
    thread.onFailure((cause) => {
      this.#close(
        new WorkerError(
          `${what} died (${cause.message}); what was running is lost. Open the model again`,
          { cause },
        ),
      );
      onDeath();
    });
    if (this.#flags) thread.post({ id: 0, method: "share", flags: this.#flags });
    thread.unref();
  }

  /** Sends a request. The signal asks the engine to stop; what it then answers is the result. */
  call<M extends keyof T & string>(
    method: M,
    params: T[M]["params"],
    options: { onEvent?: (event: T[M]["event"]) => void; signal?: AbortSignal } = {},
  ): Promise<T[M]["result"]> {
    if (this.#closed) return Promise.reject(this.#closed);
    const id = this.#nextId++;
    const abort = () => {
      if (this.#flags) Atomics.store(this.#flags, id % ABORT_FLAGS, id);
      this.#thread.post({ id, method: "abort" });
    };
    const { signal, onEvent } = options;
    const reply = new Promise<T[M]["result"]>((resolve, reject) => {
      this.#pending.set(id, { resolve: resolve as (result: unknown) => void, reject, onEvent });
    });
    // Only a thread with work to do keeps the process alive.
    if (this.#pending.size === 1) this.#thread.ref();
    try {
      this.#thread.post({ id, method, params, aborted: signal?.aborted ?? false });
    } catch (cause) {
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
    const farewell = this.call("dispose", undefined).catch(() => undefined);
    this.#closed = new DisposedError("the model");
    await atMost(farewellMs, farewell);
    this.#close(this.#closed);
    await this.#thread.terminate();
  }

  #receive(message: FromEngine): void {
    const pending = this.#pending.get(message.id);
    if (!pending) return;
    if (message.kind === "event") {
      (pending.onEvent as ((event: unknown) => void) | undefined)?.(message.event);
      return;
    }
    this.#settle(message.id);
    if (message.kind === "result") pending.resolve(message.result);
    else pending.reject(factsToError(message.error));
  }

  /** Takes a request off the list: it is about to be answered. */
  #settle(id: number): Pending | undefined {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (this.#pending.size === 0) this.#thread.unref();
    return pending;
  }

  #close(reason: Error): void {
    this.#closed ??= reason; // a thread that ends while it is disposed of did not die
    for (const pending of this.#pending.values()) pending.reject(this.#closed);
    this.#pending.clear();
  }
}

/** What a message can carry is data; functions, promises and the like stay on their thread. */
function notSendable(method: string, cause: unknown): UsageError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new UsageError(`${method}: an argument or option is not plain data: ${reason}`, { cause });
}

async function atMost(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([work, late]);
  clearTimeout(timer);
}
