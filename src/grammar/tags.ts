// Structural tags: free text until a trigger, then a grammar, then free text again.
//
// Free text is any text without a trigger in it. A trigger may be the beginning of several tags; after it, only these can
// follow.

import type { GrammarSource, StructuralTag } from "../api/grammar-source.ts";
import { GrammarError } from "./errors.ts";
import { either, literal, type Node, repeat, sequence } from "./nodes.ts";
import { complement, utf8 } from "./regex/code-points.ts";
import type { Expressions } from "./regex/expressions.ts";

export function addTags(
  tags: readonly StructuralTag[],
  of: Expressions,
  read: (source: GrammarSource) => Node,
): Node {
  const encode = (value: string): Uint8Array => new TextEncoder().encode(value);
  const anything = of.star(utf8(of, complement([])));
  const triggers: number[] = [];
  const parts: Node[] = [];
  for (const { begin, content, end, trigger = begin } of tags) {
    if (trigger === "" || !begin.startsWith(trigger)) {
      throw new GrammarError(
        `structural tags: the trigger ${JSON.stringify(trigger)} is not a beginning of ${JSON.stringify(begin)}`,
      );
    }
    triggers.push(of.literal(encode(trigger)));
    parts.push(sequence(literal(of, begin), read(content), literal(of, end)));
  }
  if (tags.length === 0) throw new GrammarError("structural tags: the list is empty");
  const free = of.and(anything, of.not(of.sequence(anything, of.any(triggers), anything)));
  const lexeme: Node = { kind: "lexeme", expression: free };
  return sequence(repeat(sequence(lexeme, either(parts)), 0, Number.POSITIVE_INFINITY), lexeme);
}
