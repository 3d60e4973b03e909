// Where a text is worked on. Small ones go to the engine's thread, which answers at once; large ones, or many at a time,
// to a thread of their own, so that no answer under way stands still meanwhile. That thread is started when it is first
// needed, and opens the model's tokenizer and template by itself. One that hangs is ended: the text that it was at fails,
// those that waited behind it go to the next thread.

import { AbortedError, LanternError, RestartingError } from "../base/errors.ts";
import type { EngineThread } from "../platform/platform.ts";
import type { TextMethods, TextRequest } from "./protocol.ts";
import { type EngineLine, Line } from "./rpc.ts";

/** The methods that both threads have. */
type SharedMethod = Exclude<keyof TextMethods, "open" | "dispose">;

/**
 * UTF-16 units of text that may be with the engine's thread at a time: a few milliseconds of its time. Messages that come
 * in together are answered together, so it is their sum that counts.
 */
const ENGINE_UNITS = 8192;

/** A text that waited behind others at which threads hung is tried so often. */
const MOST_TRIES = 5;

export interface TextThread {
  start(): EngineThread;
  request: TextRequest;
  /** See LineOptions. */
  hangSeconds?: number | undefined;
}

export class TextDesk {
  readonly #engine: Pick<EngineLine, "call">;
  readonly #thread: TextThread;
  /** Units that the engine's thread has been given and has not answered yet. */
  #given = 0;
  /** The other thread, once it is open; undefined in it: it cannot open the model, so the engine does everything. */
  #opening: Promise<Line<TextMethods> | undefined> | undefined;
  #disposed = false;

  constructor(engine: Pick<EngineLine, "call">, thread: TextThread) {
    this.#engine = engine;
    this.#thread = thread;
  }

  /** Sends a request of so many units to where it is in nobody's way. */
  async call<M extends SharedMethod>(
    method: M,
    params: TextMethods[M]["params"],
    units: number,
    signal?: AbortSignal,
  ): Promise<TextMethods[M]["result"]> {
    if (signal?.aborted) throw new AbortedError("the request", { cause: signal.reason });
    if (!this.isLarge(units)) return await this.#ask(method, params, units, signal);
    const options = signal ? { signal } : {};
    for (let tries = 1; ; tries++) {
      const line = await this.#open();
      if (!line) return await this.#ask(method, params, units, signal);
      try {
        return (await line.call(method, params, options)) as TextMethods[M]["result"];
      } catch (error) {
        if (!(error instanceof RestartingError) || tries >= MOST_TRIES) throw error;
      }
    }
  }

  /** Whether so much more should not be given to the engine's thread. */
  isLarge(units: number): boolean {
    return this.#given + units > ENGINE_UNITS;
  }

  async dispose(): Promise<void> {
    this.#disposed = true;
    await this.#close();
  }

  /** There is another engine: whether the thread's tokenizer is still the model's is to be found out anew. */
  reset(): void {
    void this.#close();
  }

  async #close(): Promise<void> {
    const opening = this.#opening;
    this.#opening = undefined;
    const line = await opening?.catch(() => undefined);
    await line?.dispose();
  }

  async #ask<M extends SharedMethod>(
    method: M,
    params: TextMethods[M]["params"],
    units: number,
    signal: AbortSignal | undefined,
  ): Promise<TextMethods[M]["result"]> {
    this.#given += units;
    try {
      const options = signal ? { signal } : {};
      return (await this.#engine.call(
        method,
        params as never,
        options,
      )) as TextMethods[M]["result"];
    } finally {
      this.#given -= units;
    }
  }

  #open(): Promise<Line<TextMethods> | undefined> {
    if (this.#disposed) return Promise.resolve(undefined); // the engine's line says that it is closed
    this.#opening ??= this.#start();
    return this.#opening;
  }

  async #start(): Promise<Line<TextMethods> | undefined> {
    const line = new Line<TextMethods>(this.#thread.start(), {
      what: "the thread that works on texts",
      advice: "The next text gets another",
      hangSeconds: this.#thread.hangSeconds,
      isSerial: true,
      onDeath: () => {
        this.#opening = undefined; // the next text starts another
      },
    });
    try {
      const [here, there] = await Promise.all([
        line.call("open", this.#thread.request),
        this.#engine.call("fingerprint", {}),
      ]);
      // Whoever put another model in the file's place meanwhile: what is in memory counts.
      if (here === there) return line;
    } catch (error) {
      // The file is gone, say; a line that was closed meanwhile says so below.
      if (!(error instanceof LanternError)) throw error;
    }
    await line.dispose();
    return undefined;
  }
}
