// Back-off of everything that retries, and the end of its retries: a server that is away, a download that was cut, a store that is busy, a
// page that follows changes elsewhere. test/rules/retries.test.ts finds loops and timers that retry without it. at-most.ts and stall.ts
// handle events that come by themselves and may be late.

export interface Waits {
  /** After the first failure; each further one in a row doubles it. */
  readonly firstMs: number;
  /** It never waits longer. */
  readonly mostMs: number;
  /** Failures in a row that end it; Infinity where it must wait for as long as it takes, once every `mostMs`. */
  readonly tries: number;
}

/** Resolves after this many ms, or when the signal is aborted. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  const end = (): void => resolve();
  signal?.addEventListener("abort", end, { once: true });
  await promise;
  clearTimeout(timer);
  signal?.removeEventListener("abort", end);
}

/** Counts failures in a row. For work that comes in parts; for the rest there is retry(). */
export class Backoff {
  readonly #waits: Waits;
  #failures = 0;

  constructor(waits: Waits) {
    this.#waits = waits;
  }

  /** The request succeeded, or a part of it: the next failure is the first again. */
  succeeded(): void {
    this.#failures = 0;
  }

  /** Counts a failure; the time to wait, or undefined if it was the last. */
  next(): number | undefined {
    const { firstMs, mostMs, tries } = this.#waits;
    if (++this.#failures >= tries) return undefined;
    return Math.min(mostMs, firstMs * 2 ** (this.#failures - 1));
  }

  /** Counts a failure and waits; false, at once, if it was the last. */
  async failed(signal?: AbortSignal): Promise<boolean> {
    const ms = this.next();
    if (ms === undefined) return false;
    await pause(ms, signal);
    return true;
  }
}

export interface RetryOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called with each failure that may be followed by another try; rethrows errors that another try cannot mend. */
  readonly onFailure?: (error: unknown) => void;
}

/** Resolves with the work's result; throws its last error after the last try, and the signal's reason when that is aborted. */
export async function retry<T>(
  work: () => Promise<T>,
  waits: Waits,
  { signal, onFailure }: RetryOptions = {},
): Promise<T> {
  const backoff = new Backoff(waits);
  for (;;) {
    try {
      return await work();
    } catch (error) {
      signal?.throwIfAborted();
      onFailure?.(error);
      if (!(await backoff.failed(signal))) throw error;
      signal?.throwIfAborted();
    }
  }
}

export interface Poll {
  /** Looks at once, however long it would have waited. */
  now(): void;
  stop(): void;
}

/**
 * Calls `look` again and again, never twice at a time, until it is stopped: `everyMs` after it has ended, and after failures later and
 * later, up to `mostMs`. It begins after `everyMs`; `firstMs`, after the first failure, is the same where it is not given.
 */
export function poll(
  look: () => Promise<void>,
  { everyMs, mostMs, firstMs = everyMs }: { everyMs: number; mostMs: number; firstMs?: number },
): Poll {
  const stop = new AbortController();
  let wake: (() => void) | undefined;
  const run = async (): Promise<void> => {
    const backoff = new Backoff({ firstMs, mostMs, tries: Infinity });
    let waitMs = everyMs;
    while (!stop.signal.aborted) {
      const woken = new AbortController();
      wake = () => woken.abort();
      await pause(waitMs, AbortSignal.any([stop.signal, woken.signal]));
      wake = undefined;
      if (stop.signal.aborted) return;
      try {
        await look();
        backoff.succeeded();
        waitMs = everyMs;
      } catch {
        waitMs = backoff.next()!; // it never ends: `look` reports errors itself
      }
    }
  };
  void run();
  return { now: () => wake?.(), stop: () => stop.abort() };
}
