// Generated tokens as a caller sees them: the text that is certain, and events with log-probabilities.

import type { TokenEvent, TokenLogprob } from "../api/api.ts";
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

export function toEvent(
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
