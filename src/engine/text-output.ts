// Generated tokens as a caller sees them: the text that is certain, and events with log-probabilities, at once or while a device
// computes the next batch.

import type { GenerateOptions, TokenEvent, TokenLogprob } from "../api/api.ts";
import type { Engine } from "./engine.ts";
import type { SampledToken } from "./sampling.ts";
import { StopMatcher } from "./stop-strings.ts";

const noBytes = new Uint8Array(0);
/** Prints a token as it appears after other text: with its leading space. */
const asNext = { special: true, continues: true };

/** Token ids to text: only whole characters, and no part of a stop string. */
export class TextOutput {
  all = "";
  /** The stop string that was found. */
  stopped: string | undefined;
  readonly #engine: Engine;
  // A byte-order mark in generated text is kept.
  readonly #utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  readonly #stops: StopMatcher;
  readonly #decode: { readonly special: boolean };

  constructor(engine: Engine, stops: readonly string[], special: boolean) {
    this.#engine = engine;
    this.#decode = { special };
    this.#stops = new StopMatcher(stops);
  }

  push(id: number): string {
    const { tokenizer } = this.#engine;
    // Embedding tables are padded to round sizes: an id beyond the vocabulary has no text.
    const bytes = id < tokenizer.vocabSize ? tokenizer.tokenBytes(id, this.#decode) : noBytes;
    return this.#emit(this.#stops.push(this.#utf8.decode(bytes, { stream: true })));
  }

  /** Returns held-back text: the end of a character, or the start of a stop string that did not come. */
  end(): string {
    if (this.stopped !== undefined) return "";
    const tail = this.#emit(this.#stops.push(this.#utf8.decode()));
    return tail + (this.stopped === undefined ? this.#emit(this.#stops.end()) : "");
  }

  #emit(text: string): string {
    this.stopped = this.#stops.matched;
    this.all += text;
    return text;
  }
}

/**
 * Tokens as events, at once or later. If a device computes apart from this thread, the next batch is submitted first, and the
 * callers' events of earlier tokens are made meanwhile.
 */
export class TokenEvents {
  readonly #engine: Engine;
  readonly #text: TextOutput;
  readonly #logprobs: number | undefined;
  readonly #emit: (event: TokenEvent) => void;
  /** Whether events wait for send(). They do not if a stop string decides what is computed next. */
  readonly areLate: boolean;
  readonly #waiting: SampledToken[] = [];
  /** So many more tokens are known to the caller already: they are part of the text, but no events. */
  #silent: number;
  #failure: unknown;

  constructor(
    engine: Engine,
    text: TextOutput,
    { stop = [], logprobs }: Pick<GenerateOptions, "stop" | "logprobs">,
    emit: (event: TokenEvent) => void,
    silent: number,
  ) {
    this.#engine = engine;
    this.#text = text;
    this.#logprobs = logprobs;
    this.#emit = emit;
    this.#silent = silent;
    this.areLate = engine.computesApart && stop.length === 0;
  }

  push(token: SampledToken): void {
    if (this.areLate) this.#waiting.push(token);
    else this.#send(token);
  }

  /** Sends the waiting events. */
  readonly send = (): void => {
    try {
      for (const token of this.#waiting) this.#send(token);
    } catch (error) {
      this.#failure ??= error;
    }
    this.#waiting.length = 0;
  };

  /** The same, at a point where an error belongs to this generation. */
  finish(): void {
    if (this.#waiting.length > 0) this.send();
    if (this.#failure !== undefined) throw this.#failure;
  }

  #send(token: SampledToken): void {
    const text = this.#text.push(token.id);
    if (this.#silent > 0) this.#silent--;
    else this.#emit(toEvent(this.#engine, token, text, this.#logprobs));
  }
}

function toEvent(
  engine: Engine,
  sampled: SampledToken,
  text: string,
  logprobs: number | undefined,
): TokenEvent {
  if (logprobs === undefined) return { id: sampled.id, text };
  const { tokenizer } = engine;
  const describe = ({ id, logprob }: { id: number; logprob: number }): TokenLogprob => {
    const isText = id < tokenizer.vocabSize;
    const text = isText ? tokenizer.decode([id], asNext) : "";
    const bytes = isText ? [...tokenizer.tokenBytes(id, asNext)] : [];
    return { id, text, bytes, logprob };
  };
  const own = describe(sampled);
  return {
    id: own.id,
    text,
    logprob: own.logprob,
    top: sampled.top.map(describe),
    token: own.text,
    bytes: own.bytes,
  };
}
