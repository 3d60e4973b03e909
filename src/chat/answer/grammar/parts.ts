// Small pieces of grammars of calls: marks with the whitespace that models write around them, JSON members, lists with separators.

import type { Counted } from "../../../api/answer-format.ts";
import type { GrammarSource } from "../../../api/grammar-source.ts";

export const literal = (text: string): GrammarSource => ({ literal: text });
export const sequence = (...parts: readonly GrammarSource[]): GrammarSource => ({
  sequence: parts,
});
export const either = (parts: readonly GrammarSource[]): GrammarSource =>
  parts.length === 1 ? parts[0]! : { either: parts };
export const maybe = (part: GrammarSource): GrammarSource => ({ repeat: part, low: 0, high: 1 });
export const any = (part: GrammarSource): GrammarSource => ({ repeat: part, low: 0 });
export const without = (...stops: readonly string[]): GrammarSource => ({
  without: stops.filter((stop) => stop !== ""),
});

/**
 * Whitespace that a model may write where its template does, and where it does not matter: limited, since a weak model writes as
 * much of it as it may.
 */
export const space: GrammarSource = { regex: " ?|\\n{1,2}[ \\t]{0,8}" };
export const nothing: GrammarSource = literal("");

/** A mark between other marks or JSON: the whitespace around it may be other than in the template. */
export function mark(text: string): GrammarSource {
  const core = text.trim();
  return core === "" ? space : sequence(space, literal(core), space);
}

/** The same at once after a value or at the start. */
export function closingMark(text: string): GrammarSource {
  const core = text.trim();
  return core === "" ? space : sequence(literal(core), space);
}

/** A mark before a name or plain text, to which other whitespace would belong. */
export function exactMark(text: string): GrammarSource {
  const core = text.trim();
  const tail = text.slice(text.trimEnd().length);
  return tail === "" || core === "" ? literal(core) : sequence(literal(core), maybe(literal(tail)));
}

/** A mark after a name. */
export function countedMark({ first, last }: Counted): GrammarSource {
  if (last !== undefined)
    return sequence(literal(first), { regex: "[0-9]{1,6}" }, closingMark(last));
  return first.trim() === "" ? space : sequence(literal(first.trimEnd()), space);
}

export const member = (key: string, value: GrammarSource): GrammarSource =>
  sequence(literal(JSON.stringify(key)), space, literal(":"), space, value);

export const comma: GrammarSource = sequence(space, literal(","), space);

/** One or more, or exactly one. */
export function several(
  part: GrammarSource,
  separator: GrammarSource,
  isSeveral: boolean,
): GrammarSource {
  return isSeveral ? sequence(part, any(sequence(separator, part))) : part;
}

export interface Item {
  readonly part: GrammarSource;
  readonly isRequired: boolean;
}

/** Items in their order, with separators between those that are there. */
export function separated(items: readonly Item[], separator: GrammarSource): GrammarSource {
  const after = (from: number): GrammarSource[] =>
    items.slice(from).map(({ part, isRequired }) => {
      const one = sequence(separator, part);
      return isRequired ? one : maybe(one);
    });
  const starts: GrammarSource[] = [];
  for (const [at, { part, isRequired }] of items.entries()) {
    starts.push(sequence(part, ...after(at + 1)));
    if (isRequired) return either(starts);
  }
  return either([...starts, nothing]);
}
