// A running generation as the caller sees it: an async iterator of text, one of tokens, and a promise of the result.

import type { Generation, GenerationResult, TokenEvent } from "../api/api.ts";

/** Starts the work; `emit` gets every token, the promise settles at the end. */
type Start = (emit: (event: TokenEvent) => void, signal: AbortSignal) => Promise<GenerationResult>;

/**
 * Starts immediately. Leaving the loop early (break, return, throw) aborts the generation; so does the caller's
 * signal. Text is queued until it is read.
 */
export function startGeneration(start: Start, signal: AbortSignal | undefined): Generation {
  const leave = new AbortController();
  const either = signal ? AbortSignal.any([signal, leave.signal]) : leave.signal;
  const events = new EventQueue();
  const result = start((event) => events.push(event), either);
  result.then(
    () => events.end(undefined),
    (error: unknown) => events.end(error),
  );
  // A caller who only iterates sees the error there; without this it would also be an unhandled rejection.
  result.catch(() => {});

  async function* tokens(): AsyncGenerator<TokenEvent> {
    let finished = false;
    try {
      for (;;) {
        const event = await events.next();
        if (!event) break;
        yield event;
      }
      finished = true;
    } finally {
      if (!finished) leave.abort();
    }
  }

  async function* text(): AsyncGenerator<string> {
    for await (const event of tokens()) if (event.text) yield event.text;
  }

  return { tokens, result, [Symbol.asyncIterator]: text };
}

/** Events in order for all readers; the end (or the error) comes after the last of them. */
class EventQueue {
  readonly #events: TokenEvent[] = [];
  #ended = false;
  #error: unknown;
  /** Readers that wait for an event: several if a generation is iterated more than once. */
  #waiting: (() => void)[] = [];

  push(event: TokenEvent): void {
    this.#events.push(event);
    this.#wake();
  }

  end(error: unknown): void {
    this.#ended = true;
    this.#error = error;
    this.#wake();
  }

  async next(): Promise<TokenEvent | undefined> {
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
