// A regular expression that is looked for in a text while it grows: an expression follows it byte by byte, so that a long text is not
// searched again after every token. Only when there is a match, its groups are looked for.

import { plainCharacters } from "./code-points.ts";
import { Expressions } from "./expressions.ts";
import { firstGroupStart } from "./pattern-groups.ts";
import { patternLanguage } from "./pattern-language.ts";

/** The most work on the expression of one pattern, in all: a few hundredths of a second. */
const MOST_WORK = { steps: 30_000, bytes: 16 << 20 };

export class PatternTrigger {
  readonly #source: string;
  readonly #of = new Expressions();
  #at: number;
  #text: Uint8Array = new Uint8Array(256);
  #length = 0;

  constructor(source: string) {
    this.#source = source;
    this.#of.meter.begin(MOST_WORK);
    this.#at = patternLanguage(this.#of, source, plainCharacters(this.#of));
  }

  /** More of the text; at a match, the text from its first group on, or from its start. */
  push(bytes: Uint8Array): Uint8Array | undefined {
    if (this.#length + bytes.length > this.#text.length) {
      const larger = new Uint8Array(2 * (this.#length + bytes.length));
      larger.set(this.#text.subarray(0, this.#length));
      this.#text = larger;
    }
    this.#text.set(bytes, this.#length);
    this.#length += bytes.length;
    for (const byte of bytes) this.#at = this.#of.derivative(this.#at, byte);
    if (!this.#of.nullable(this.#at)) return undefined;
    const all = this.#text.subarray(0, this.#length);
    const text = new TextDecoder().decode(all);
    const start = firstGroupStart(this.#source, text) ?? 0;
    const before = new TextEncoder().encode([...text].slice(0, start).join(""));
    return all.subarray(before.length);
  }
}
