// Finds the groups of a regular expression in a text that it matches: a backtracking matcher with the order of ECMAScript's, and a
// bound on its steps, for patterns of strangers. An expression (pattern-language.ts), which has no groups, is the cheaper test for
// whether there is a match at all.

import { GrammarSizeError } from "../errors.ts";
import { type Pattern, parsePattern } from "./pattern.ts";

const MOST_STEPS = 200_000;

type Next = (at: number) => boolean;

/**
 * The start, in code points, of the first group that matched some text of the leftmost match; without such a group, the start of the
 * match. undefined: there is no match.
 */
export function firstGroupStart(source: string, text: string): number | undefined {
  try {
    return searched(parsePattern(source, { captures: true }), new GroupMatcher([...text]));
  } catch (error) {
    if (error instanceof RangeError) throw tooMany(error); // the stack is full
    throw error;
  }
}

const tooMany = (cause?: unknown): GrammarSizeError =>
  new GrammarSizeError("regular expression: it takes too many steps to find its groups", { cause });

function searched(pattern: Pattern, matcher: GroupMatcher): number | undefined {
  for (let start = 0; start <= matcher.length; start++) {
    if (!matcher.match(pattern, start, () => true)) continue;
    const groups = [...matcher.groups].sort(([a], [b]) => a - b);
    return groups.find(([, { from, to }]) => to > from)?.[1].from ?? start;
  }
  return undefined;
}

class GroupMatcher {
  readonly #text: readonly string[];
  readonly groups: Map<number, { from: number; to: number }> = new Map();
  #steps = 0;

  constructor(text: readonly string[]) {
    this.#text = text;
  }

  get length(): number {
    return this.#text.length;
  }

  /** Whether the pattern matches from `at` on, and then `next` does. */
  match(pattern: Pattern, at: number, next: Next): boolean {
    if (++this.#steps > MOST_STEPS) throw tooMany();
    switch (pattern.kind) {
      case "set":
        return this.#has(pattern.set, at) && next(at + 1);
      case "start":
        return at === 0 && next(at);
      case "end":
        return at === this.length && next(at);
      case "look":
        return this.match(pattern.item, at, () => true) !== pattern.negative && next(at);
      case "either":
        return pattern.items.some((item) => this.match(item, at, next));
      case "sequence":
        return this.#sequence(pattern, at, next);
      case "repeat":
        return pattern.item.kind === "set"
          ? this.#run(pattern, pattern.item.set, at, next)
          : this.#repeat(pattern, 0, at, next);
      default:
        return pattern satisfies never;
    }
  }

  #has(set: readonly number[], at: number): boolean {
    const point = this.#text[at]?.codePointAt(0);
    if (point === undefined) return false;
    for (let i = 0; i < set.length; i += 2) {
      if (point >= set[i]! && point <= set[i + 1]!) return true;
    }
    return false;
  }

  #sequence(
    { items, capture }: Extract<Pattern, { kind: "sequence" }>,
    at: number,
    next: Next,
  ): boolean {
    const from = (index: number, here: number): boolean => {
      if (index < items.length) {
        return this.match(items[index]!, here, (to) => from(index + 1, to));
      }
      if (capture === undefined) return next(here);
      const before = this.groups.get(capture);
      this.groups.set(capture, { from: at, to: here });
      if (next(here)) return true;
      if (before === undefined) this.groups.delete(capture);
      else this.groups.set(capture, before);
      return false;
    };
    return from(0, at);
  }

  /** Characters of one set: a loop, since there may be many. */
  #run(
    { low, high, lazy }: Extract<Pattern, { kind: "repeat" }>,
    set: readonly number[],
    at: number,
    next: Next,
  ): boolean {
    let most = 0;
    while (most < high && this.#has(set, at + most)) most++;
    this.#steps += most;
    for (let count = low; count <= most; count++) {
      if (next(at + (lazy ? count : most + low - count))) return true;
    }
    return false;
  }

  #repeat(
    pattern: Extract<Pattern, { kind: "repeat" }>,
    count: number,
    at: number,
    next: Next,
  ): boolean {
    const { item, low, high, lazy } = pattern;
    const more = (): boolean =>
      count < high &&
      this.match(item, at, (to) => {
        // An iteration that takes no text changes nothing.
        return (to > at || count < low) && this.#repeat(pattern, count + 1, to, next);
      });
    const enough = (): boolean => count >= low && next(at);
    return lazy ? enough() || more() : more() || enough();
  }
}
