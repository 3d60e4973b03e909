// The positions of a grammar as data: positions.ts builds it, network.ts reads it, and one thread sends it to another.
//
// Position n and edge n beyond the stored ones belong to counters: "k items of this repetition so far", and the call of one more. They
// are numbers only, so that a repetition of ten thousand takes no more room than one of five.

import { GrammarSizeError } from "./errors.ts";
import type { Expressions } from "./regex/expressions.ts";

export const EDGE = { none: 0, text: 1, lexeme: 2, rule: 3, token: 4, counter: 5 } as const;

/** The end of every rule. */
export const END = 0;

/** Positions and edges have 31 bits. */
const MOST_POSITIONS = 2 ** 31 - 1;

export interface TokenSet {
  readonly ids: readonly number[];
  readonly except: boolean;
}

/** From `low` to `high` items, each a call of the rule, then `next`. */
export interface Counter {
  readonly rule: number;
  low: number;
  high: number;
  readonly next: number;
  /** Its first position: no item so far. */
  base?: number;
}

interface PositionData {
  /** Edges of a position are a list: first[position], then after[edge]; -1 ends it. */
  readonly first: Int32Array<ArrayBuffer>;
  readonly ruleOf: Int32Array<ArrayBuffer>; // [positions]
  readonly after: Int32Array<ArrayBuffer>; // [edges]
  readonly kind: Uint8Array<ArrayBuffer>; // [edges]
  /** [edges]: the expression, the rule, or the index in `tokenSets` or `counters`. */
  readonly what: Int32Array<ArrayBuffer>;
  readonly to: Int32Array<ArrayBuffer>; // [edges]
  readonly starts: Int32Array<ArrayBuffer>; // [rules]
  readonly nullable: Uint8Array<ArrayBuffer>; // [rules]
  readonly names: readonly string[]; // [rules]
  readonly tokenSets: readonly TokenSet[];
  readonly counters: readonly Counter[];
}

export class PositionTable {
  readonly data: PositionData;
  readonly first: Int32Array;
  readonly after: Int32Array;
  readonly kind: Uint8Array;
  readonly what: Int32Array;
  readonly to: Int32Array;
  readonly starts: Int32Array;
  readonly nullable: Uint8Array;
  readonly names: readonly string[];
  readonly tokenSets: readonly TokenSet[];
  readonly counters: readonly Counter[];

  constructor(data: PositionData) {
    this.data = data;
    this.first = data.first;
    this.after = data.after;
    this.kind = data.kind;
    this.what = data.what;
    this.to = data.to;
    this.starts = data.starts;
    this.nullable = data.nullable;
    this.names = data.names;
    this.tokenSets = data.tokenSets;
    this.counters = data.counters;
  }

  /** Gives counters their positions; once all else is known. */
  number(): void {
    let base = this.first.length;
    for (const counter of this.counters) {
      // Items that may be empty can be left out, so that none must come.
      if (this.nullable[counter.rule]) counter.low = 0;
      counter.base = base;
      base += lastCount(counter) + 1;
      if (base + this.to.length <= MOST_POSITIONS) continue;
      throw new GrammarSizeError(
        `grammar: the repetitions of its rule ${this.names[counter.rule]} count to more than ${MOST_POSITIONS} together. Use shorter repetitions`,
      );
    }
  }

  /** The rule that a position is in. */
  nameAt(position: number): string {
    if (position < this.first.length) return this.names[this.data.ruleOf[position]!]!;
    return this.names[this.counterAt(position).rule]!;
  }

  /** The counter that a position beyond the stored ones belongs to. */
  counterAt(position: number): Counter {
    let low = 0;
    let high = this.counters.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.counters[middle]!.base! <= position) low = middle;
      else high = middle - 1;
    }
    return this.counters[low]!;
  }

  /** The edge that takes one more item of a counter from this position. */
  itemEdge(position: number): number {
    return this.to.length + position - this.first.length;
  }

  kindOf(edge: number): number {
    return edge < this.kind.length ? this.kind[edge]! : EDGE.rule;
  }

  /** The target of an edge that calls: the lexeme's expression, or the rule. */
  targetOf(edge: number): number {
    if (edge < this.what.length) return this.what[edge]!;
    return this.counterAt(edge - this.to.length + this.first.length).rule;
  }

  toOf(edge: number): number {
    if (edge < this.to.length) return this.to[edge]!;
    const position = edge - this.to.length + this.first.length;
    const counter = this.counterAt(position);
    return Math.min(position + 1, counter.base! + lastCount(counter));
  }

  /** Whether an edge can be passed without any byte. */
  isFree(edge: number, of: Expressions): boolean {
    switch (this.kind[edge]) {
      case EDGE.none:
        return true;
      case EDGE.text:
      case EDGE.lexeme:
        return of.nullable(this.what[edge]!);
      case EDGE.rule:
        return this.nullable[this.what[edge]!] === 1;
      case EDGE.counter: {
        const { rule, low } = this.counters[this.what[edge]!]!;
        return low === 0 || this.nullable[rule] === 1;
      }
      default:
        return false;
    }
  }
}

/** The count at which counting ends: without an upper bound, all counts above the least are equal. */
function lastCount({ low, high }: Counter): number {
  return high === Number.POSITIVE_INFINITY ? low : high;
}
