// The text before the answer of a model that reasons: free text up to a mark, then a little space.
//
// Marks are often control tokens, which have no bytes: such a mark is its token.

import type { ReasoningMarks } from "../api/grammar-source.ts";
import { either, literal, type Node, repeat, sequence, text } from "./nodes.ts";
import { complement, utf8 } from "./regex/code-points.ts";
import type { Expressions } from "./regex/expressions.ts";

/** Line ends and spaces between a mark and the text after it. */
const MOST_SPACE = 4;

export function reasoningNode(
  { start, end }: ReasoningMarks,
  of: Expressions,
  controlToken: (mark: string) => number | undefined,
): Node {
  const encode = (value: string): number => of.literal(new TextEncoder().encode(value));
  const mark = (given: string): Node => {
    const id = controlToken(given.trim());
    if (id === undefined) return literal(of, given.trim());
    return { kind: "token", ids: [id], except: false };
  };
  const anything = of.star(utf8(of, complement([])));
  const free = of.and(anything, of.not(of.sequence(anything, encode(end.trim()), anything)));
  const space = repeat(text(of.any([" ", "\n", "\r", "\t"].map(encode))), 0, MOST_SPACE);
  const open = sequence({ kind: "lexeme", expression: free }, mark(end), space);
  if (start === undefined) return open;
  return sequence(space, either([sequence(mark(start), open), literal(of, "")]));
}
