// Whether regular expressions find a match in texts, within bounds: for patterns of strangers, which the platform's RegExp may take
// for ever with.

import { GrammarError } from "../errors.ts";
import { plainCharacters } from "./code-points.ts";
import { EMPTY, Expressions } from "./expressions.ts";
import { patternLanguage } from "./pattern-language.ts";

/** For all patterns and texts together: a few hundredths of a second. */
const MOST_WORK = { steps: 30_000, bytes: 16 << 20 };

export class PatternFinder {
  readonly #of = new Expressions();
  readonly #languages = new Map<string, number | undefined>();

  constructor() {
    this.#of.meter.begin(MOST_WORK);
  }

  /** undefined: the pattern has no regular language, or takes too much work. */
  finds(source: string, text: string): boolean | undefined {
    try {
      let at = this.#languageOf(source);
      for (const byte of new TextEncoder().encode(text)) {
        if (at === undefined || at === EMPTY) break;
        at = this.#of.derivative(at, byte);
      }
      return at === undefined ? undefined : this.#of.nullable(at);
    } catch (error) {
      if (error instanceof GrammarError) return undefined;
      throw error;
    }
  }

  #languageOf(source: string): number | undefined {
    if (!this.#languages.has(source)) {
      this.#languages.set(source, undefined); // stays so where it has none
      const language = patternLanguage(this.#of, source, plainCharacters(this.#of));
      this.#languages.set(source, language);
    }
    return this.#languages.get(source);
  }
}
