// The characters inside a JSON string as expressions: free strings, lengths, patterns, keys.

import { complement, jsonCharacters, type WriteCharacter } from "../regex/code-points.ts";
import { EMPTY, type Expressions } from "../regex/expressions.ts";
import { patternLanguage } from "../regex/pattern-language.ts";
import type { Shape, StringShape } from "./shapes.ts";

const encoder = new TextEncoder();

/** The rest of a string after its opening quote, the closing quote included. */
export function stringBody(of: Expressions): number {
  const character = jsonCharacters(of)(complement([]));
  return of.concat(of.star(character), of.literal(encoder.encode('"')));
}

/** The constructors that a schema's strings need. */
export class StringLanguages {
  readonly #of: Expressions;
  readonly #write: WriteCharacter;
  readonly character: number;
  readonly #patterns: Map<string, number> = new Map();

  constructor(of: Expressions) {
    this.#of = of;
    this.#write = jsonCharacters(of);
    this.character = this.#write(complement([]));
  }

  /** Strings in which the pattern finds a match. */
  pattern(source: string): number {
    let language = this.#patterns.get(source);
    if (language === undefined) {
      language = patternLanguage(this.#of, source, this.#write);
      this.#patterns.set(source, language);
    }
    return language;
  }

  /** Strings that the pattern matches from end to end. */
  whole(source: string): number {
    const key = `^${source}$ whole`;
    let language = this.#patterns.get(key);
    if (language === undefined) {
      language = patternLanguage(this.#of, source, this.#write, { whole: true });
      this.#patterns.set(key, language);
    }
    return language;
  }

  length(low: number, high: number): number {
    return this.#of.repeat(this.character, low, high);
  }

  /** Exactly this string. */
  exact(value: string): number {
    return this.#of.literal(encoder.encode(escapeInside(value)));
  }

  oneOf(values: readonly string[]): number {
    return this.#of.any(values.map((value) => this.exact(value)));
  }

  /** The intersection of the languages, with a length. */
  all(languages: readonly number[], low: number, high: number): number {
    const parts = [...languages];
    if (low > 0 || high !== Number.POSITIVE_INFINITY || parts.length === 0) {
      parts.push(this.length(low, high));
    }
    return this.#of.every(parts);
  }

  not(language: number): number {
    return this.#of.and(this.length(0, Number.POSITIVE_INFINITY), this.#of.not(language));
  }

  /** Strings in none of the languages. */
  without(languages: readonly number[]): number {
    return this.not(this.#of.any(languages));
  }

  /** The strings among the values of these shapes. */
  names(shapes: readonly Shape[]): number {
    const languages = shapes.map((shape) => {
      if (shape.type === "string") return this.all(shape.languages, shape.low, shape.high);
      return shape.type === "const" && typeof shape.value === "string"
        ? this.exact(shape.value)
        : EMPTY;
    });
    return this.#of.any(languages);
  }

  matches(language: number, value: string): boolean {
    let at = language;
    for (const byte of encoder.encode(escapeInside(value))) {
      at = this.#of.derivative(at, byte);
      if (!this.#of.alive(at)) return false;
    }
    return this.#of.nullable(at);
  }

  isAlive(shape: StringShape): boolean {
    return this.#of.alive(this.all(shape.languages, shape.low, shape.high));
  }

  /** The language followed by the closing quote. */
  closed(language: number): number {
    return this.#of.concat(language, this.#of.literal(encoder.encode('"')));
  }
}

/** As JSON.stringify writes it, without the quotes. */
function escapeInside(value: string): string {
  return JSON.stringify(value).slice(1, -1);
}
