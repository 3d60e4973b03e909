// The rules of a grammar as one graph of positions with edges: an expression, a lexeme, a call of a rule, a token, a counter, or none.
//
// Position 0 is the end of every rule. The graph is built from the end of each rule to its start; then edges that cannot lead to an
// end are removed, so that a mask never allows a token into a dead end.
//
// A longer repetition is a counter: one edge that stands for the positions "n items so far", which are numbered after all others and
// never stored (position-table.ts).

import { GrammarError } from "./errors.ts";
import { refuseLeftRecursion } from "./left-recursion.ts";
import type { Node, Rules } from "./nodes.ts";
import { type Counter, EDGE, END, PositionTable, type TokenSet } from "./position-table.ts";
import { joinedCounts } from "./regex/counts.ts";
import type { Expressions } from "./regex/expressions.ts";

/** Longer repetitions of something large are counters; shorter ones are copies, which are quicker. */
const MOST_COPIES = 3;
/** Memory of a position with an edge, about. */
const POSITION_BYTES = 100;

/** The positions of a grammar's rules. */
export function positionsOf(rules: Rules, of: Expressions): PositionTable {
  return new PositionBuilder(rules, of).build();
}

class PositionBuilder {
  readonly #of: Expressions;
  readonly #rules: Rules;
  /** Edges of a position are a list: first[position], then after[edge]; -1 ends it. */
  readonly #first: number[] = [-1];
  readonly #ruleOf: number[] = [0]; // by position
  readonly #after: number[] = [];
  readonly #kind: number[] = [];
  readonly #what: number[] = [];
  readonly #to: number[] = [];
  readonly #from: number[] = [];
  readonly #starts: number[] = []; // by rule
  readonly #tails: [edge: number, rule: number][] = [];
  readonly #tokenSets: TokenSet[] = [];
  readonly #counters: Counter[] = [];
  #rule = 0;

  constructor(rules: Rules, of: Expressions) {
    this.#rules = rules;
    this.#of = of;
  }

  build(): PositionTable {
    const rules = this.#rules;
    this.#of.meter.at = () => rules.name(this.#rule);
    for (let rule = 0; rule < rules.count; rule++) {
      this.#rule = rule;
      this.#starts[rule] ??= this.#build(rules.get(rule), END);
    }
    for (const [edge, rule] of this.#tails) this.#to[edge] = this.#starts[rule]!;
    const names = Array.from({ length: rules.count }, (_, rule) => rules.name(rule));
    const table = new PositionTable({
      first: Int32Array.from(this.#first),
      ruleOf: Int32Array.from(this.#ruleOf),
      after: Int32Array.from(this.#after),
      kind: Uint8Array.from(this.#kind),
      what: Int32Array.from(this.#what),
      to: Int32Array.from(this.#to),
      starts: Int32Array.from(this.#starts),
      nullable: new Uint8Array(rules.count),
      names,
      tokenSets: this.#tokenSets,
      counters: this.#counters,
    });
    const reach = new Reach(table, Int32Array.from(this.#from), this.#of);
    reach.findNullable();
    reach.prune();
    refuseLeftRecursion(table, this.#of);
    return table;
  }

  #add(): number {
    this.#of.meter.spend(1 / 4);
    this.#of.meter.take(POSITION_BYTES);
    this.#ruleOf.push(this.#rule);
    return this.#first.push(-1) - 1;
  }

  #edge(from: number, kind: number, what: number, to: number): void {
    this.#kind.push(kind);
    this.#what.push(what);
    this.#to.push(to);
    this.#from.push(from);
    this.#first[from] = this.#after.push(this.#first[from]!) - 1;
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
        this.#tails.push([this.#first[position]!, node.rule]);
        return position;
      }
      case "token":
        this.#tokenSets.push({ ids: node.ids, except: node.except });
        return this.#simple(EDGE.token, this.#tokenSets.length - 1, next);
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

  #buildRepeat(given: Node & { kind: "repeat" }, next: number): number {
    let { item, low, high } = given;
    while (item.kind === "repeat") {
      const counts = joinedCounts(item, { low, high });
      if (counts === undefined) break;
      ({ low, high } = counts);
      item = item.item;
    }
    if (item.kind === "text") {
      return this.#simple(EDGE.text, this.#of.repeat(item.expression, low, high), next);
    }
    if ((high === Number.POSITIVE_INFINITY ? low + 1 : high) > MOST_COPIES) {
      return this.#count(item, low, high, next);
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

  #count(item: Node, low: number, high: number, next: number): number {
    let rule = item.kind === "rule" ? item.rule : -1;
    if (rule < 0) {
      rule = this.#rules.add(this.#rules.name(this.#rule), item);
      this.#starts[rule] = this.#build(item, END);
    }
    this.#counters.push({ rule, low, high, next });
    return this.#simple(EDGE.counter, this.#counters.length - 1, next);
  }
}

/** Which positions lead to the end of their rules. */
class Reach {
  readonly #table: PositionTable;
  readonly #from: Int32Array;
  readonly #of: Expressions;

  constructor(table: PositionTable, from: Int32Array, of: Expressions) {
    this.#table = table;
    this.#from = from;
    this.#of = of;
    of.meter.spend((table.first.length + from.length) / 4);
  }

  findNullable(): void {
    const { nullable } = this.#table;
    this.#reach(
      (edge) => this.#table.isFree(edge, this.#of),
      (rule) => {
        nullable[rule] = 1;
      },
    );
  }

  prune(): void {
    const { first, after, to, starts, names, kind, what, counters } = this.#table;
    const productive = new Uint8Array(starts.length);
    const passes = (edge: number): boolean => {
      switch (kind[edge]) {
        case EDGE.rule:
          return productive[what[edge]!] === 1;
        case EDGE.counter: {
          const { rule, low } = counters[what[edge]!]!;
          return low === 0 || productive[rule] === 1;
        }
        case EDGE.text:
        case EDGE.lexeme:
          return this.#of.alive(what[edge]!);
        default:
          return true;
      }
    };
    const live = this.#reach(passes, (rule) => {
      productive[rule] = 1;
    });
    if (productive[0] !== 1) {
      throw new GrammarError(
        `grammar: no text matches it: ${names[0]} never comes to an end, or asks for what cannot be`,
      );
    }
    for (let position = 1; position < first.length; position++) {
      let kept = -1;
      for (let edge = first[position]!; edge >= 0; ) {
        const next = after[edge]!;
        if (live[to[edge]!] && passes(edge)) {
          after[edge] = kept;
          kept = edge;
        }
        edge = next;
      }
      first[position] = kept;
    }
    // An item that never comes to an end is never taken.
    for (const counter of counters) if (productive[counter.rule] !== 1) counter.high = 0;
    this.#table.number();
  }

  /** Marks positions from which `passes` edges lead to the end; `onRule` is called for rules with a marked start. */
  #reach(passes: (edge: number) => boolean, onRule: (rule: number) => void): Uint8Array {
    const { first, to, starts } = this.#table;
    const reached = new Uint8Array(first.length);
    const { into, calls } = this.#reverse();
    const rulesAt = new Map<number, number[]>();
    for (const [rule, start] of starts.entries()) {
      const list = rulesAt.get(start);
      if (list) list.push(rule);
      else rulesAt.set(start, [rule]);
    }
    const queue = [END];
    reached[END] = 1;
    const take = (edge: number): void => {
      const from = this.#from[edge]!;
      if (reached[from] || !reached[to[edge]!] || !passes(edge)) return;
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

  /** The edges that lead to each position, as lists, and the edges that call each rule. */
  #reverse(): { into: { first: Int32Array; after: Int32Array }; calls: number[][] } {
    const { to, kind, what, counters } = this.#table;
    const first = new Int32Array(this.#table.first.length).fill(-1);
    const after = new Int32Array(to.length);
    const calls: number[][] = [];
    for (let edge = 0; edge < to.length; edge++) {
      after[edge] = first[to[edge]!]!;
      first[to[edge]!] = edge;
      const isCounter = kind[edge] === EDGE.counter;
      if (kind[edge] !== EDGE.rule && !isCounter) continue;
      const rule = isCounter ? counters[what[edge]!]!.rule : what[edge]!;
      calls[rule] ??= [];
      calls[rule].push(edge);
    }
    return { into: { first, after }, calls };
  }
}
