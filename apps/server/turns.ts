// One generation in as many turns of the queue as it needs. It gives its turn back
//   - when another client is to have it (queue.ts),
//   - while its client does not read: unread events are kept in memory, up to a limit, and the generation pauses beyond it.
// It continues after its own tokens (GenerateOptions.resumeTokens): the text is that of a generation that never stopped, and its state is
// usually still in the prefix cache.

import type {
  GenerateOptions,
  Generation,
  GenerationResult,
  Model,
  TokenEvent,
} from "../../src/index.ts";

type Speculation = NonNullable<GenerationResult["timings"]["speculation"]>;

/** The number of bytes of events, about, that wait in memory for a client that does not read: some ten thousand tokens. */
const MOST_UNREAD: number = 2 ** 20;
/** The size of an event, and of one of its alternatives (logprobs), with names and brackets. */
const EVENT_BYTES = 64;
const ALTERNATIVE_BYTES = 200;

/** The part of a turn that is used here. */
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
  /** For tests: the limit of unread events. */
  readonly mostUnread?: number;
}

export interface TurnedGeneration {
  /** For one reader. Leaving early aborts the generation. */
  tokens(): AsyncGenerator<TokenEvent>;
  readonly result: Promise<GenerationResult>;
}

/** The part of a generation that runs in one turn. */
interface Stretch {
  readonly place: PlaceToRun;
  readonly generation: Generation;
  /** Ends the turn; the generation continues later. */
  pause(): void;
  /** Whether pause() ended it. */
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
  result.catch(() => {}); // the reader awaits it, too
  return {
    async *tokens() {
      let isDone = false;
      try {
        for (;;) {
          const event = unread.take();
          if (event) yield event;
          else if (unread.isEnded) break;
          else await unread.changed();
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
    /** Text that was held back until the end: only the last turn's counts. */
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

/** undefined: the client has left, and its generation is an ordinary aborted one. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (signal.aborted) return undefined;
    throw error;
  }
}

/** The sum of all turns. */
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

/** Events that wait for their reader. No promise is made for an event unless the reader or the writer waits. */
class Unread {
  readonly #most: number;
  #events: TokenEvent[] = [];
  #bytes = 0;
  #isEnded = false;
  /** The reader waits for an event, or the writer for room. */
  #waiting: PromiseWithResolvers<void> | undefined;

  constructor(most: number) {
    this.#most = most;
  }

  get isFull(): boolean {
    return this.#bytes > this.#most;
  }

  get isEnded(): boolean {
    return this.#isEnded;
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

  /** undefined: there is none now. */
  take(): TokenEvent | undefined {
    const event = this.#events.shift();
    if (event) this.#bytes -= bytesOf(event);
    if (this.#hasCapacity()) this.#change();
    return event;
  }

  /** Resolves when half of the limit is free; rejects with the signal's reason. */
  async room(signal: AbortSignal): Promise<void> {
    const wake = (): void => this.#change();
    signal.addEventListener("abort", wake, { once: true });
    try {
      for (;;) {
        signal.throwIfAborted();
        if (this.#hasCapacity()) return;
        await this.changed();
      }
    } finally {
      signal.removeEventListener("abort", wake);
    }
  }

  /** Resolves when there is something to take, room, or an end; also without any of these. */
  changed(): Promise<void> {
    this.#waiting ??= Promise.withResolvers<void>();
    return this.#waiting.promise;
  }

  #hasCapacity(): boolean {
    return this.#bytes <= this.#most / 2;
  }

  #change(): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.resolve();
  }
}

function bytesOf({ text, top = [] }: TokenEvent): number {
  return EVENT_BYTES + text.length + top.length * ALTERNATIVE_BYTES;
}
