// Turns the tree of a regular expression into the expression of all texts that it matches.
//
// A pattern is compiled from its end: every part gets the expression of the rest, up to the end of the text. So "$" requires an
// empty rest, and a lookahead intersects with the rest. A pattern finds its match anywhere, so any text may stand before and after
// it.

import { GrammarError } from "../errors.ts";
import { complement, type WriteCharacter } from "./code-points.ts";
import { EMPTY, EPSILON, type Expressions } from "./expressions.ts";
import { type Pattern, type PatternOptions, parsePattern } from "./pattern.ts";

/** Texts in which `source` finds a match (`whole`: that it matches from end to end), in the characters of `write`. */
export function patternLanguage(
  of: Expressions,
  source: string,
  write: WriteCharacter,
  options: PatternOptions & { readonly whole?: boolean } = {},
): number {
  of.meter.spend(source.length / 4); // before a list of its characters is made
  const pattern = parsePattern(source, { ...options, meter: of.meter });
  const compiler = new PatternCompiler(of, source, write);
  if (options.whole) return compiler.follow(pattern, EPSILON, true);
  const character = write(complement([]));
  const anything = of.star(character);
  if (!isAnchored(pattern)) return of.concat(anything, compiler.plain(pattern, anything));
  const atStart = compiler.follow(pattern, anything, true);
  const later = compiler.follow(pattern, anything, false);
  return of.or(atStart, of.sequence(character, anything, later));
}

function isAnchored(pattern: Pattern): boolean {
  switch (pattern.kind) {
    case "set":
      return false;
    case "sequence":
    case "either":
      return pattern.items.some(isAnchored);
    case "repeat":
      return isAnchored(pattern.item);
    default:
      return true;
  }
}

class PatternCompiler {
  readonly #of: Expressions;
  readonly #source: string;
  readonly #write: WriteCharacter;

  constructor(of: Expressions, source: string, write: WriteCharacter) {
    this.#of = of;
    this.#source = source;
    this.#write = write;
  }

  plain(pattern: Pattern, rest: number): number {
    return this.#of.concat(this.#alone(pattern), rest);
  }

  /** The pattern by itself: it has no anchor and no lookahead. */
  #alone(pattern: Pattern): number {
    switch (pattern.kind) {
      case "set":
        return this.#write(pattern.set);
      case "sequence":
        return this.#of.inOrder(pattern.items.map((item) => this.#alone(item)));
      case "either":
        return this.#of.any(pattern.items.map((item) => this.#alone(item)));
      case "repeat":
        return this.#of.repeat(this.#alone(pattern.item), pattern.low, pattern.high);
      default:
        throw new GrammarError(
          `regular expression ${JSON.stringify(this.#source.slice(0, 200))}: an anchor or a lookahead inside of a repetition is not supported`,
        );
    }
  }

  /** The pattern, then `rest`, which reaches to the end of the text. `atStart`: the text begins with the pattern. */
  follow(pattern: Pattern, rest: number, atStart: boolean): number {
    if (!isAnchored(pattern)) return this.plain(pattern, rest);
    const of = this.#of;
    switch (pattern.kind) {
      case "start":
        return atStart ? rest : EMPTY;
      case "end":
        return of.nullable(rest) ? EPSILON : EMPTY;
      case "look": {
        const anything = of.star(this.#write(complement([])));
        const ahead = this.follow(pattern.item, anything, atStart);
        return of.and(pattern.negative ? of.not(ahead) : ahead, rest);
      }
      case "either":
        return of.any(pattern.items.map((item) => this.follow(item, rest, atStart)));
      case "repeat": {
        if (pattern.low === 1 && pattern.high === 1)
          return this.follow(pattern.item, rest, atStart);
        if (pattern.low === 0 && pattern.high === 1) {
          return of.or(rest, this.follow(pattern.item, rest, atStart));
        }
        return this.plain(pattern, rest);
      }
      case "sequence":
        return this.#followAll(pattern.items, rest, atStart);
      default:
        return this.plain(pattern, rest);
    }
  }

  #followAll(items: readonly Pattern[], rest: number, atStart: boolean): number {
    // The number of first items that take no text.
    const first = items.findIndex(
      ({ kind }) => kind !== "start" && kind !== "end" && kind !== "look",
    );
    const free = first < 0 ? items.length : first;
    let after = rest;
    for (let i = items.length - 1; i >= 0; i--) {
      this.#of.meter.spend(1);
      after = this.follow(items[i]!, after, atStart && i <= free);
    }
    return after;
  }
}
