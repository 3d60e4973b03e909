// The events of models, for clients that follow them (llama.cpp's GET /models/sse): loads and unloads, downloads and removals. An
// event is { model, event, data } as llama.cpp's router sends it.
//
// Events are not kept: a late client asks GET /models. A reader that does not read gets only the latest progress, and is cut off when
// too many other events wait for it.

import type { LoadState } from "./registry.ts";

export interface ModelEvent {
  /** "*": all of them. */
  readonly model: string;
  /** llama.cpp has two names for a new status: model_status says that a load begins. */
  readonly event:
    | "model_status"
    | "status_change"
    | "download_progress"
    | "download_finished"
    | "download_failed"
    | "model_remove"
    | "models_reload";
  readonly data?: object;
}

interface Reader {
  readonly events: ModelEvent[];
  isClosed: boolean;
  wake(): void;
}

/** Least time between two events about the progress of a model. */
const progressMs = 100;
/** Events that may wait for a reader. */
const mostWaiting = 1000;

export class ModelEvents {
  readonly #readers = new Set<Reader>();
  /** The last status of each model that was sent. */
  readonly #told = new Map<string, string>();
  readonly #progressAt = new Map<string, number>();
  readonly #now: () => number;
  #isClosed = false;

  /** `now`: a clock in milliseconds. */
  constructor(now: () => number) {
    this.#now = now;
  }

  emit(event: ModelEvent): void {
    for (const reader of this.#readers) {
      const { events } = reader;
      const last = events.at(-1);
      const isNewer = isProgress(event) && last && isProgress(last) && last.model === event.model;
      if (isNewer) events.pop();
      events.push(event);
      if (events.length > mostWaiting) reader.isClosed = true;
      reader.wake();
    }
  }

  /** A model has changed; an event is sent if its status differs, or its load makes progress. */
  status(model: string, { value, error, progress }: LoadState): void {
    const isSame = this.#told.get(model) === value && error === undefined;
    const { loadedBytes = 0, totalBytes = 0 } = progress ?? {};
    if (isSame && (totalBytes === 0 || !this.#isTime(model))) return;
    if (!this.#told.has(model) && value === "unloaded" && error === undefined) return;
    const event = !isSame && value === "loading" ? "model_status" : "status_change";
    this.#told.set(model, value);
    const stage = "text_model";
    const data = {
      status: value,
      ...(value === "unloaded" && { exit_code: error === undefined ? 0 : 1 }),
      ...(error !== undefined && { error }),
      ...(totalBytes > 0 && {
        progress: { stages: [stage], current: stage, value: loadedBytes / totalBytes },
      }),
    };
    this.emit({ model, event, data });
  }

  /** The progress of a download. */
  downloaded(model: string, loadedBytes: number, totalBytes: number): void {
    if (!this.#isTime(model)) return;
    const progress = { [model]: { done: loadedBytes, total: totalBytes } };
    this.emit({ model, event: "download_progress", data: { progress } });
  }

  #isTime(model: string): boolean {
    const now = this.#now();
    if (now - (this.#progressAt.get(model) ?? -Infinity) < progressMs) return false;
    this.#progressAt.set(model, now);
    return true;
  }

  /** All events from now on, until the signal, or the end of the server. */
  follow(signal: AbortSignal): AsyncGenerator<ModelEvent> {
    let next = Promise.withResolvers<void>();
    const reader: Reader = {
      events: [],
      isClosed: this.#isClosed,
      wake: () => next.resolve(),
    };
    const leave = (): void => {
      reader.isClosed = true;
      next.resolve();
    };
    this.#readers.add(reader); // now, not when the first event is read
    signal.addEventListener("abort", leave, { once: true });
    const readers = this.#readers;
    return (async function* () {
      try {
        while (!reader.isClosed) {
          yield* reader.events.splice(0);
          await next.promise;
          next = Promise.withResolvers();
        }
      } finally {
        signal.removeEventListener("abort", leave);
        readers.delete(reader);
      }
    })();
  }

  /** Ends all streams: a server that stops does not wait for their readers. */
  close(): void {
    this.#isClosed = true;
    for (const reader of this.#readers) {
      reader.isClosed = true;
      reader.wake();
    }
  }
}

function isProgress({ event, data }: ModelEvent): boolean {
  return event === "download_progress" || (data !== undefined && Object.hasOwn(data, "progress"));
}
