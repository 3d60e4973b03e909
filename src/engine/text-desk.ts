// The text desk decides on which thread a text is tokenized or rendered. Small texts go to the engine's thread, which answers
// immediately. Large texts, or many at a time, go to a text thread, so that no running generation stalls. That thread is started
// when it is first needed, and opens the model's tokenizer and template itself. If it hangs it is terminated: its current text
// fails, and later texts go to the next thread.

import { AbortedError, LanternError, RestartingError } from "../base/errors.ts";
import type { Program } from "../grammar/program.ts";
import type { GrammarText } from "../grammar/source.ts";
import type { EngineThread } from "../platform/platform.ts";
import type { TextMethods, TextRequest } from "./protocol.ts";
import { type EngineLine, Line } from "./rpc.ts";

/** The methods that both threads have. */
type SharedMethod = Exclude<keyof TextMethods, "open" | "dispose" | "compileProgram">;

/**
 * UTF-16 units of text that the engine's thread may have at a time: a few milliseconds of work. Messages that arrive
 * together are handled together, so their sum counts.
 */
const ENGINE_UNITS = 8192;

/** The number of retries of a text that waited behind others at which a thread hung. */
const MOST_TRIES = 5;

/** A request of a text thread. */
interface TextCall {
  readonly signal?: AbortSignal;
  readonly isBackground: boolean;
}

export interface TextThread {
  start(): EngineThread;
  request: TextRequest;
  /** See LineOptions. */
  hangSeconds?: number | undefined;
}

export class TextDesk {
  readonly #engine: Pick<EngineLine, "call">;
  readonly #thread: TextThread;
  /** Units that the engine's thread has and has not answered yet. */
  #given = 0;
  /**
   * The text thread, once it is open; resolves to undefined if it cannot open the model, so that the engine does
   * everything.
   */
  #opening: Promise<Line<TextMethods> | undefined> | undefined;
  #disposed = false;
  /** Requests that are not answered yet. */
  #running = 0;

  constructor(engine: Pick<EngineLine, "call">, thread: TextThread) {
    this.#engine = engine;
    this.#thread = thread;
  }

  /** Sends a request of this many units to the right thread. */
  async call<M extends SharedMethod>(
    method: M,
    params: TextMethods[M]["params"],
    units: number,
    signal?: AbortSignal,
    isBackground = false,
  ): Promise<TextMethods[M]["result"]> {
    this.#running++;
    try {
      return await this.#call(method, params, units, {
        isBackground,
        ...(signal && { signal }),
      });
    } finally {
      this.#running--;
    }
  }

  /** Whether no text is being worked on. */
  get isIdle(): boolean {
    return this.#running === 0;
  }

  async #call<M extends SharedMethod>(
    method: M,
    params: TextMethods[M]["params"],
    units: number,
    options: TextCall,
  ): Promise<TextMethods[M]["result"]> {
    const { signal } = options;
    if (signal?.aborted) throw new AbortedError("the request", { cause: signal.reason });
    if (!this.isLarge(units)) return await this.#ask(method, params, units, options);
    const there = await this.#callThread(method, params, options);
    return there ? there.result : await this.#ask(method, params, units, options);
  }

  /** Compiles a grammar that would take long on the engine's thread; undefined: there is no other. */
  async compile(source: GrammarText): Promise<Program | undefined> {
    this.#running++;
    try {
      return (await this.#callThread("compileProgram", { source }, { isBackground: false }))
        ?.result;
    } finally {
      this.#running--;
    }
  }

  /** undefined: the thread cannot open the model. */
  async #callThread<M extends keyof TextMethods>(
    method: M,
    params: TextMethods[M]["params"],
    options: TextCall,
  ): Promise<{ result: TextMethods[M]["result"] } | undefined> {
    for (let tries = 1; ; tries++) {
      const line = await this.#open();
      if (!line) return undefined;
      try {
        const result = await line.call(method, params as never, options);
        return { result: result as TextMethods[M]["result"] };
      } catch (error) {
        if (!(error instanceof RestartingError) || tries >= MOST_TRIES) throw error;
      }
    }
  }

  /** Whether this much more text is too much for the engine's thread. */
  isLarge(units: number): boolean {
    return this.#given + units > ENGINE_UNITS;
  }

  async dispose(): Promise<void> {
    this.#disposed = true;
    await this.#close();
  }

  /** Call when the engine was restarted or unloaded: the tokenizers of both threads must be compared again. */
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
    options: TextCall,
  ): Promise<TextMethods[M]["result"]> {
    this.#given += units;
    try {
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
    if (this.#disposed) return Promise.resolve(undefined); // the engine's RPC reports that it is closed
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
      // The file may have been replaced meanwhile: the model in memory counts.
      if (here === there) return line;
    } catch (error) {
      // The file may be gone; a closed thread is reported below.
      if (!(error instanceof LanternError)) throw error;
    }
    await line.dispose();
    return undefined;
  }
}
