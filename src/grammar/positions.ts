// The rules of a grammar as one graph of positions with edges: an expression, a lexeme, a call of a rule, a token, or none.
//
// Position 0 is the end of every rule. The graph is built from the end of each rule to its start; then edges that cannot
// lead to an end are removed, so that a mask never allows a token that leads nowhere.

import { GrammarError, GrammarSizeError } from "./errors.ts";
import type { Node, Rules } from "./nodes.ts";
import type { Expressions } from "./regex/expressions.ts";

export const EDGE = { none: 0, text: 1, lexeme: 2, rule: 3, token: 4 } as const;

/** Where every rule ends. */
export const END = 0;

const MOST_POSITIONS = 2_000_000;
/** Longer repetitions of something large call a rule instead of copying it. */
const MOST_COPIES = 3;

export class Positions {
  readonly #of: Expressions;
  readonly #rules: Rules;
  /** Edges of a position are a list: first[position], then after[edge]; -1 ends it. */
  readonly first: number[] = [-1];
  readonly after: number[] = [];
  readonly kind: number[] = [];
  /** The expression, the rule or the index in `tokenSets`. */
  readonly what: number[] = [];
  readonly to: number[] = [];
  readonly from: number[] = [];
  readonly starts: number[] = []; // by rule
  readonly nullable: boolean[] = []; // by rule
  readonly #tails: [edge: number, rule: number][] = [];
  readonly tokenSets: { readonly ids: readonly number[]; readonly except: boolean }[] = [];

  constructor(rules: Rules, of: Expressions) {
    this.#of = of;
    this.#rules = rules;
    for (let rule = 0; rule < rules.count; rule++) {
      this.starts[rule] ??= this.#build(rules.get(rule), END);
    }
    for (const [edge, rule] of this.#tails) this.to[edge] = this.starts[rule]!;
    this.#findNullable();
    this.#prune();
    this.#refuseLeftRecursion();
  }

  #add(): number {
    if (this.first.length >= MOST_POSITIONS) {
      throw new GrammarSizeError(
        `grammar: more than ${MOST_POSITIONS} positions. Use shorter repetitions`,
      );
    }
    return this.first.push(-1) - 1;
  }

  #edge(from: number, kind: number, what: number, to: number): void {
    this.kind.push(kind);
    this.what.push(what);
    this.to.push(to);
    this.from.push(from);
    this.first[from] = this.after.push(this.first[from]!) - 1;
  }

  #simple(kind: number, what: number, next: number): number {
    const position = this.#add();
    this.#edge(position, kind, what, next);
    return position;
  }

  /** The position from which `node` leads to `next`. */
  #build(node: Node, next: number): number {
    switch (node.kind) {
      case "text":
        return this.#simple(EDGE.text, node.expression, next);
      case "lexeme":
        return this.#simple(EDGE.lexeme, node.expression, next);
      case "rule":
        return this.#simple(EDGE.rule, node.rule, next);
      case "tail": {
        if (next !== END) throw new Error("a tail is not the last item of its rule");
        const position = this.#simple(EDGE.none, 0, END);
        this.#tails.push([this.first[position]!, node.rule]);
        return position;
      }
      case "token":
        this.tokenSets.push(node);
        return this.#simple(EDGE.token, this.tokenSets.length - 1, next);
      case "sequence":
        return node.items.reduceRight((after, item) => this.#build(item, after), next);
      case "either": {
        const position = this.#add();
        for (const item of node.items) this.#edge(position, EDGE.none, 0, this.#build(item, next));
        return position;
      }
      case "repeat":
        return this.#buildRepeat(node, next);
      default:
        return node satisfies never;
    }
  }

  #buildRepeat(node: Node & { kind: "repeat" }, next: number): number {
    const { low, high } = node;
    if (node.item.kind === "text") {
      return this.#simple(EDGE.text, this.#of.repeat(node.item.expression, low, high), next);
    }
    let item = node.item;
    const copies = high === Number.POSITIVE_INFINITY ? low + 1 : high;
    const isSmall = item.kind !== "sequence" && item.kind !== "either" && item.kind !== "repeat";
    if (copies > MOST_COPIES && !isSmall) {
      const rule = this.#rules.add("repetition", item);
      this.starts[rule] = this.#build(item, END);
      item = { kind: "rule", rule };
    }
    let at = next;
    if (high === Number.POSITIVE_INFINITY) {
      at = this.#add();
      this.#edge(at, EDGE.none, 0, next);
      this.#edge(at, EDGE.none, 0, this.#build(item, at));
    } else {
      for (let i = low; i < high; i++) {
        const optional = this.#add();
        this.#edge(optional, EDGE.none, 0, next);
        this.#edge(optional, EDGE.none, 0, this.#build(item, at));
        at = optional;
      }
    }
    for (let i = 0; i < low; i++) at = this.#build(item, at);
    return at;
  }

  /** Whether an edge can be passed without any byte. */
  #isFree(edge: number): boolean {
    switch (this.kind[edge]) {
      case EDGE.none:
        return true;
      case EDGE.text:
      case EDGE.lexeme:
        return this.#of.nullable(this.what[edge]!);
      case EDGE.rule:
        return this.nullable[this.what[edge]!] ?? false;
      default:
        return false;
    }
  }

  /** Marks positions from which `passes` edges lead to the end; `onRule` hears of rules whose start is marked. */
  #reach(passes: (edge: number) => boolean, onRule: (rule: number) => void): Uint8Array {
    const reached = new Uint8Array(this.first.length);
    const { into, calls } = this.#reverse();
    const rulesAt = new Map<number, number[]>();
    for (const [rule, start] of this.starts.entries()) {
      const list = rulesAt.get(start);
      if (list) list.push(rule);
      else rulesAt.set(start, [rule]);
    }
    const queue = [END];
    reached[END] = 1;
    const take = (edge: number): void => {
      const from = this.from[edge]!;
      if (reached[from] || !reached[this.to[edge]!] || !passes(edge)) return;
      reached[from] = 1;
      queue.push(from);
    };
    while (queue.length > 0) {
      const position = queue.pop()!;
      for (let edge = into.first[position]!; edge >= 0; edge = into.after[edge]!) take(edge);
      for (const rule of rulesAt.get(position) ?? []) {
        onRule(rule);
        for (const edge of calls[rule] ?? []) take(edge);
      }
    }
    return reached;
  }

  /** The edges that lead to each position, as lists, and those that call each rule. */
  #reverse(): { into: { first: Int32Array; after: Int32Array }; calls: number[][] } {
    const first = new Int32Array(this.first.length).fill(-1);
    const after = new Int32Array(this.after.length);
    const calls: number[][] = [];
    for (let edge = 0; edge < this.to.length; edge++) {
      after[edge] = first[this.to[edge]!]!;
      first[this.to[edge]!] = edge;
      if (this.kind[edge] !== EDGE.rule) continue;
      const rule = this.what[edge]!;
      calls[rule] ??= [];
      calls[rule].push(edge);
    }
    return { into: { first, after }, calls };
  }

  #findNullable(): void {
    this.#reach(
      (edge) => this.#isFree(edge),
      (rule) => {
        this.nullable[rule] = true;
      },
    );
  }

  #prune(): void {
    const productive = new Uint8Array(this.starts.length);
    const passes = (edge: number): boolean => {
      const what = this.what[edge]!;
      if (this.kind[edge] === EDGE.rule) return productive[what] === 1;
      if (this.kind[edge] === EDGE.text || this.kind[edge] === EDGE.lexeme)
        return this.#of.alive(what);
      return true;
    };
    const live = this.#reach(passes, (rule) => {
      productive[rule] = 1;
    });
    if (productive[0] !== 1) {
      throw new GrammarError(
        `grammar: no text matches it: ${this.#rules.name(0)} never comes to an end, or asks for what cannot be`,
      );
    }
    for (let position = 1; position < this.first.length; position++) {
      let kept = -1;
      for (let edge = this.first[position]!; edge >= 0; ) {
        const next = this.after[edge]!;
        if (live[this.to[edge]!] && passes(edge)) {
          this.after[edge] = kept;
          kept = edge;
        }
        edge = next;
      }
      this.first[position] = kept;
    }
  }

  /** A rule that calls itself before it takes a byte would be called forever. */
  #refuseLeftRecursion(): void {
    const done = new Uint8Array(this.starts.length); // 1: on the path, 2: done
    const visit = (rule: number): void => {
      const path: { rule: number; calls: number[] }[] = [{ rule, calls: this.#firstCalls(rule) }];
      done[rule] = 1;
      while (path.length > 0) {
        const top = path[path.length - 1]!;
        const called = top.calls.pop();
        if (called === undefined) {
          done[top.rule] = 2;
          path.pop();
        } else if (done[called] === 1) {
          throw new GrammarError(
            `grammar: the rule ${this.#rules.name(called)} calls itself before it takes a character (left recursion). Write a repetition instead: x ::= y (op y)*`,
          );
        } else if (done[called] === 0) {
          done[called] = 1;
          path.push({ rule: called, calls: this.#firstCalls(called) });
        }
      }
    };
    visit(0);
    for (let edge = 0; edge < this.kind.length; edge++) {
      const rule = this.what[edge]!;
      if (this.kind[edge] === EDGE.rule && done[rule] === 0) visit(rule);
    }
  }

  #firstCalls(rule: number): number[] {
    const seen = new Set<number>([this.starts[rule]!]);
    const calls = new Set<number>();
    for (const position of seen) {
      for (let edge = this.first[position]!; edge >= 0; edge = this.after[edge]!) {
        if (this.kind[edge] === EDGE.rule) calls.add(this.what[edge]!);
        if (this.#isFree(edge)) seen.add(this.to[edge]!);
      }
    }
    return [...calls];
  }
}
