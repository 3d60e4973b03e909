// A running generation as the caller sees it: an async iterator of text, one of tokens, and a promise of the result.

import type { Generation, GenerationResult, TokenEvent } from "../api/api.ts";

/** Starts the work; `emit` gets every event, the promise settles at the end. */
type Start<Event, Result> = (emit: (event: Event) => void, signal: AbortSignal) => Promise<Result>;

/** Work with events that are read as they come, or an end that is awaited. */
interface Stream<Event, Result> {
  events(): AsyncGenerator<Event>;
  readonly result: Promise<Result>;
}

/** A generation from its tokens. */
export function startGeneration<Result extends GenerationResult>(
  start: Start<TokenEvent, Result>,
  signal: AbortSignal | undefined,
): Generation & { readonly result: Promise<Result> } {
  const { events: tokens, result } = startStream(start, signal);

  async function* text(): AsyncGenerator<string> {
    for await (const event of tokens()) if (event.text) yield event.text;
  }

  return { tokens, result, [Symbol.asyncIterator]: text };
}

/**
 * Starts immediately. Leaving the loop early (break, return, throw) aborts the work; so does the caller's signal. Events are
 * queued until they are read.
 */
export function startStream<Event, Result>(
  start: Start<Event, Result>,
  signal: AbortSignal | undefined,
): Stream<Event, Result> {
  const leave = new AbortController();
  const either = signal ? AbortSignal.any([signal, leave.signal]) : leave.signal;
  const queue = new EventQueue<Event>();
  const result = start((event) => queue.push(event), either);
  result.then(
    () => queue.end(undefined),
    (error: unknown) => queue.end(error),
  );
  // A caller that only iterates sees the error there; without this it would also be an unhandled rejection.
  result.catch(() => {});

  async function* events(): AsyncGenerator<Event> {
    let finished = false;
    try {
      for (;;) {
        const event = await queue.next();
        if (!event) break;
        yield event;
      }
      finished = true;
    } finally {
      if (!finished) leave.abort();
    }
  }

  return { events, result };
}

/** Events in order for all readers; the end (or the error) comes after the last of them. */
class EventQueue<Event> {
  readonly #events: Event[] = [];
  #ended = false;
  #error: unknown;
  /** Readers that wait for an event: several if a generation is iterated more than once. */
  #waiting: (() => void)[] = [];

  push(event: Event): void {
    this.#events.push(event);
    this.#wake();
  }

  end(error: unknown): void {
    this.#ended = true;
    this.#error = error;
    this.#wake();
  }

  async next(): Promise<Event | undefined> {
    while (this.#events.length === 0) {
      if (this.#error) throw this.#error;
      if (this.#ended) return undefined;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    return this.#events.shift();
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resume of waiting) resume();
  }
}
