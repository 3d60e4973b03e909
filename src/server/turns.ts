// One generation in as many turns of the queue as it takes. It gives its turn back in between
//   - when another client is to have it (queue.ts),
//   - while its client does not read: what waits for the client is kept in memory, up to a limit, and no longer than that computed for.
// It goes on after its own tokens (GenerateOptions.resumeTokens): the text is that of a generation that never stopped, and what it had
// computed is usually still in the prefix cache.

import type { GenerateOptions, Generation, GenerationResult, Model, TokenEvent } from "../index.ts";

type Speculation = NonNullable<GenerationResult["timings"]["speculation"]>;

/** About so many bytes of events wait in memory for a client that does not read: some ten thousand tokens. */
const MOST_UNREAD: number = 2 ** 20;
/** What an event takes, and one of its alternatives (logprobs), with names and brackets. */
const EVENT_BYTES = 64;
const ALTERNATIVE_BYTES = 200;

/** A turn as it is used here. */
export interface PlaceToRun {
  /** Aborted when the turn is asked back. */
  readonly preempted: AbortSignal;
  /** The turn is over; `written`: all tokens until now. */
  leave(written: readonly number[], result?: GenerationResult): void;
}

export interface InTurns {
  readonly model: Model;
  readonly tokens: readonly number[];
  readonly options: GenerateOptions;
  readonly signal: AbortSignal;
  readonly first: PlaceToRun;
  /** The next turn, for a generation that has written these tokens. */
  again(written: readonly number[]): Promise<PlaceToRun>;
  onEvent(event: TokenEvent): void;
  /** For tests: the limit of what waits for a client. */
  readonly mostUnread?: number;
}

export interface TurnedGeneration {
  /** For one reader. Leaving early aborts the generation. */
  tokens(): AsyncGenerator<TokenEvent>;
  readonly result: Promise<GenerationResult>;
}

/** A turn in which it computes. */
interface Stretch {
  readonly place: PlaceToRun;
  readonly generation: Generation;
  /** Ends the turn; the generation goes on later. */
  pause(): void;
  /** Whether it was ended so. */
  isPaused(): boolean;
}

/** Starts at once, in the first turn, and throws if it cannot. */
export function generateInTurns(parts: InTurns): TurnedGeneration {
  const leave = new AbortController();
  const signal = AbortSignal.any([parts.signal, leave.signal]);
  const unread = new Unread(parts.mostUnread ?? MOST_UNREAD);
  // The same for all turns.
  const seed = parts.options.seed ?? crypto.getRandomValues(new Uint32Array(1))[0]!;
  const start = (place: PlaceToRun, resumeTokens: readonly number[]): Stretch => {
    const own = new AbortController();
    const pauses = AbortSignal.any([place.preempted, own.signal]);
    const either = AbortSignal.any([signal, pauses]);
    const resumed = resumeTokens.length > 0 && { resumeTokens: [...resumeTokens] };
    const options = { ...parts.options, seed, ...resumed, signal: either };
    try {
      const generation = parts.model.generate(parts.tokens, options);
      generation.result.catch(() => {}); // the same error ends its tokens
      return {
        ...{ place, generation, pause: () => own.abort() },
        isPaused: () => pauses.aborted && !signal.aborted,
      };
    } catch (error) {
      place.leave(resumeTokens);
      throw error;
    }
  };
  const first = start(parts.first, parts.options.resumeTokens ?? []);
  const result = runInTurns(parts, { first, start, signal, unread }).finally(() => unread.end());
  result.catch(() => {}); // whoever reads awaits it, too
  return {
    async *tokens() {
      let isDone = false;
      try {
        for (;;) {
          const event = await unread.next();
          if (!event) break;
          yield event;
        }
        isDone = true;
      } finally {
        if (!isDone) leave.abort();
      }
    },
    result,
  };
}

async function runInTurns(
  { options: { resumeTokens: given = [] }, again, onEvent }: InTurns,
  {
    first,
    start,
    signal,
    unread,
  }: {
    first: Stretch;
    start(place: PlaceToRun, written: readonly number[]): Stretch;
    signal: AbortSignal;
    unread: Unread;
  },
): Promise<GenerationResult> {
  const written: number[] = [...given];
  const results: GenerationResult[] = [];
  for (let now = first; ; ) {
    /** Text that was held back until the end: only of the last turn. */
    let rest: TokenEvent | undefined;
    let result: GenerationResult | undefined;
    try {
      for await (const event of now.generation.tokens()) {
        if (event.progress && results.length > 0) continue; // the prompt is known to the reader
        if (event.id < 0 && !event.progress) {
          rest = event;
          continue;
        }
        if (event.id >= 0) written.push(event.id);
        onEvent(event);
        unread.push(event);
        if (unread.isFull) now.pause();
      }
      result = await now.generation.result;
    } finally {
      now.place.leave(written, result);
    }
    results.push(result);
    if (result.stopReason !== "aborted" || !now.isPaused()) {
      if (rest) unread.push(rest);
      return whole(results, given.length);
    }
    const next = await unlessAborted(
      unread.room(signal).then(() => again(written)),
      signal,
    );
    if (!next) return whole(results, given.length);
    now = start(next, written);
  }
}

/** undefined: who asked has left, and its generation is an aborted one like any other. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (signal.aborted) return undefined;
    throw error;
  }
}

/** What all turns together have done. */
function whole(results: readonly GenerationResult[], given: number): GenerationResult {
  const last = results.at(-1)!;
  if (results.length === 1) return last;
  const all = results.map(({ timings }) => timings);
  const first = all.find(({ promptMs }) => promptMs > 0) ?? all[0]!;
  const { cachedTokens, restored, computedAgain, movedTokens } = first;
  const {
    restored: _r,
    computedAgain: _c,
    movedTokens: _m,
    speculation: _s,
    ...rest
  } = last.timings;
  const sum = (of: (timings: (typeof all)[number]) => number): number =>
    all.reduce((total, timings) => total + of(timings), 0);
  const speculation = all.reduce<Speculation | undefined>(
    (one, { speculation: other }) => (one && other ? added(one, other) : (one ?? other)),
    undefined,
  );
  return {
    ...last,
    timings: {
      ...rest,
      ...{ cachedTokens, ...(restored && { restored }), ...(computedAgain && { computedAgain }) },
      ...(movedTokens && { movedTokens }),
      ...(speculation && { speculation }),
      promptMs: sum(({ promptMs }) => promptMs),
      generatedTokens: last.tokenIds.length - given,
      generatedMs: sum(({ generatedMs }) => generatedMs),
      sampledTokens: sum(({ sampledTokens }) => sampledTokens),
      sampleMs: sum(({ sampleMs }) => sampleMs),
      totalMs: sum(({ totalMs }) => totalMs),
    },
  };
}

function added(one: Speculation, other: Speculation): Speculation {
  return {
    ...other,
    drafted: one.drafted + other.drafted,
    accepted: one.accepted + other.accepted,
    draftedBatches: one.draftedBatches + other.draftedBatches,
    batches: one.batches + other.batches,
    savedMs: one.savedMs + other.savedMs,
  };
}

/** Events that wait for their reader. */
class Unread {
  readonly #most: number;
  #events: TokenEvent[] = [];
  #bytes = 0;
  #isEnded = false;
  /** The reader that waits for an event, or the writer that waits for room. */
  #changed = Promise.withResolvers<void>();

  constructor(most: number) {
    this.#most = most;
  }

  get isFull(): boolean {
    return this.#bytes > this.#most;
  }

  push(event: TokenEvent): void {
    this.#events.push(event);
    this.#bytes += bytesOf(event);
    this.#change();
  }

  end(): void {
    this.#isEnded = true;
    this.#change();
  }

  /** undefined: there are no more. */
  async next(): Promise<TokenEvent | undefined> {
    while (this.#events.length === 0) {
      if (this.#isEnded) return undefined;
      await this.#changed.promise;
    }
    const event = this.#events.shift()!;
    this.#bytes -= bytesOf(event);
    this.#change();
    return event;
  }

  /** Resolves when half of the limit is free; rejects with the signal's reason. */
  async room(signal: AbortSignal): Promise<void> {
    const left = Promise.withResolvers<never>();
    left.promise.catch(() => {});
    const leave = (): void => left.reject(signal.reason as Error);
    signal.addEventListener("abort", leave, { once: true });
    try {
      signal.throwIfAborted();
      while (this.#bytes > this.#most / 2) {
        await Promise.race([this.#changed.promise, left.promise]);
      }
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  #change(): void {
    const { resolve } = this.#changed;
    this.#changed = Promise.withResolvers<void>();
    resolve();
  }
}

function bytesOf({ text, top = [] }: TokenEvent): number {
  return EVENT_BYTES + text.length + top.length * ALTERNATIVE_BYTES;
}
