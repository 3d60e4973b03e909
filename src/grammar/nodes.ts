// The nodes that readers of grammars make: rules as trees of sequences, choices and repetitions over expressions and other rules.

import { GrammarSizeError } from "./errors.ts";
import { EMPTY, type Expressions } from "./regex/expressions.ts";

export type Node =
  /** Text that joins its neighbours in one automaton: keys, punctuation, words of a list. */
  | { readonly kind: "text"; readonly expression: number }
  /** Text with an automaton of its own that all grammars share: strings, numbers, patterns. */
  | { readonly kind: "lexeme"; readonly expression: number }
  | { readonly kind: "rule"; readonly rule: number }
  /** Goes on as another rule does, and ends with it: only as the last item of a rule. */
  | { readonly kind: "tail"; readonly rule: number }
  /** One token by its id, with any bytes; `except`: any token but these. */
  | { readonly kind: "token"; readonly ids: readonly number[]; readonly except: boolean }
  | { readonly kind: "sequence"; readonly items: readonly Node[] }
  | { readonly kind: "either"; readonly items: readonly Node[] }
  | { readonly kind: "repeat"; readonly item: Node; readonly low: number; readonly high: number };

export const NEVER: Node = { kind: "text", expression: EMPTY };

export function sequence(...items: readonly Node[]): Node {
  return inOrder(items);
}

export function inOrder(items: readonly Node[]): Node {
  return items.length === 1 ? items[0]! : { kind: "sequence", items };
}

export function either(items: readonly Node[]): Node {
  if (items.length === 0) return NEVER;
  return items.length === 1 ? items[0]! : { kind: "either", items };
}

export function repeat(item: Node, low: number, high: number): Node {
  return { kind: "repeat", item, low, high };
}

export function text(expression: number): Node {
  return { kind: "text", expression };
}

export function literal(of: Expressions, value: string): Node {
  return text(of.literal(new TextEncoder().encode(value)));
}

const MOST_RULES = 500_000;

/** The rules of one grammar. Rule 0 is where it begins. */
export class Rules {
  readonly #nodes: Node[] = [];
  readonly #names: string[] = [];

  /** A rule that is set later, so that rules can name each other. */
  add(name: string, node: Node = NEVER): number {
    if (this.#nodes.length >= MOST_RULES) {
      throw new GrammarSizeError(`grammar: more than ${MOST_RULES} rules`);
    }
    this.#names.push(name);
    return this.#nodes.push(node) - 1;
  }

  set(rule: number, node: Node): void {
    this.#nodes[rule] = node;
  }

  get(rule: number): Node {
    return this.#nodes[rule]!;
  }

  name(rule: number): string {
    return this.#names[rule]!;
  }

  get count(): number {
    return this.#nodes.length;
  }
}
