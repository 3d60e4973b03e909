// Triggers of a lazy grammar: it begins to apply at a token, at a text that the answer contains, or at a match of a regular expression.
// As in llama.cpp, the grammar is given the text from the beginning of the trigger on (of a regular expression, of its first group);
// with `after`, from its end on.

import type { GrammarTrigger } from "../api/api.ts";
import type { PatternTrigger } from "../grammar/regex/pattern-trigger.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";

interface TextTrigger {
  readonly bytes: Uint8Array;
  readonly after: boolean;
}

const withSpecial = { special: true };

export class GrammarTriggers {
  readonly #tokenizer: Tokenizer;
  readonly #tokens: ReadonlyMap<number, boolean>;
  readonly #texts: readonly TextTrigger[];
  /** The end of the text so far; no trigger begins before it. */
  #tail: Uint8Array<ArrayBufferLike> = new Uint8Array(0);
  readonly #most: number;
  readonly #patterns: PatternTrigger[];
  isFound = false;

  /** @param patternOf Follows a regular expression; its code is loaded with that of grammars. */
  constructor(
    triggers: readonly GrammarTrigger[],
    tokenizer: Tokenizer,
    patternOf: (source: string) => PatternTrigger,
  ) {
    this.#tokenizer = tokenizer;
    const utf8 = new TextEncoder();
    const texts: TextTrigger[] = [];
    const tokens = new Map<number, boolean>();
    for (const trigger of triggers) {
      if ("pattern" in trigger) continue;
      const after = trigger.after ?? false;
      if ("token" in trigger) tokens.set(trigger.token, after);
      else texts.push({ bytes: utf8.encode(trigger.text), after });
    }
    this.#texts = texts;
    this.#tokens = tokens;
    this.#patterns = triggers.flatMap((trigger) =>
      "pattern" in trigger ? [patternOf(trigger.pattern)] : [],
    );
    this.#most = texts.reduce((most, { bytes }) => Math.max(most, bytes.length), 0);
  }

  /** Takes a token of the text. If a trigger is found, returns the text from which on the grammar applies. */
  push(id: number): Uint8Array | undefined {
    const bytes = this.#tokenizer.tokenBytes(id, withSpecial);
    const after = this.#tokens.get(id);
    if (after !== undefined) {
      this.isFound = true;
      return after ? bytes.subarray(bytes.length) : bytes;
    }
    const text = joined(this.#tail, bytes);
    let first = -1;
    let found: TextTrigger | undefined;
    for (const trigger of this.#texts) {
      const at = indexOf(text, trigger.bytes);
      if (at >= 0 && (first < 0 || at < first)) {
        first = at;
        found = trigger;
      }
    }
    if (found) {
      this.isFound = true;
      return text.subarray(first + (found.after ? found.bytes.length : 0));
    }
    this.#tail = text.subarray(Math.max(0, text.length - this.#most + 1));
    // All patterns see the token, also after one that has found its match.
    const rests = this.#patterns.map((pattern) => pattern.push(bytes));
    const rest = rests.find((one) => one !== undefined);
    this.isFound = rest !== undefined;
    return rest;
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  const all = new Uint8Array(a.length + b.length);
  all.set(a);
  all.set(b, a.length);
  return all;
}

function indexOf(text: Uint8Array, sought: Uint8Array): number {
  for (let at = 0; at + sought.length <= text.length; at++) {
    let same = 0;
    while (same < sought.length && text[at + same] === sought[same]) same++;
    if (same === sought.length) return at;
  }
  return -1;
}
