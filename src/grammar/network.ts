// The automaton of a grammar: a state is a set of positions that share a continuation.
//
// Inside a rule it is an ordinary automaton over bytes. At the start of rules or lexemes, `calls` lists them: the state that the
// call begins in, and the state that follows when it has ended. Calls with the same target share one continuation, and rules with
// the same continuation share one start, so that alternatives stay together.

import { Automaton, CALLS, ENDS, FINAL } from "./automaton.ts";
import { GrammarSizeError } from "./errors.ts";
import type { Lexemes } from "./lexemes.ts";
import { EDGE, END, type PositionTable } from "./position-table.ts";
import { EPSILON, type Expressions } from "./regex/expressions.ts";

export interface Call {
  readonly isLexeme: boolean;
  readonly start: number;
  readonly resume: number;
  /** The call is the last part of this rule: it replaces the caller on the stack. */
  readonly isLast: boolean;
}

export interface TokenCall {
  readonly ids: ReadonlySet<number>;
  readonly except: boolean;
  readonly resume: number;
}

interface StateData {
  readonly items: Int32Array; // pairs: expression, position after it
  readonly edges: readonly number[]; // calls of rules, lexemes and tokens
  calls?: readonly Call[];
  /** Begun, and not done. */
  finding?: Finding | undefined;
  tokens?: readonly TokenCall[];
}

/** The calls of a state that were found before a pause. */
interface Finding {
  readonly targets: [target: number, positions: readonly number[]][]; // rules as they are, lexemes below 0
  readonly calls: Call[];
  readonly rules: Map<number, number[]>; // by the state after them
}

const MOST_STATES = 200_000;
/** Positions have 31 bits. */
const PLACES = 2 ** 31;

export class Network extends Automaton {
  readonly #of: Expressions;
  readonly #positions: PositionTable;
  readonly #lexemes: Lexemes;
  readonly #data: StateData[] = [{ items: new Int32Array(0), edges: [] }];
  readonly #states: Map<string, number> = new Map();
  readonly #tokenSets: ReadonlySet<number>[];
  #seen: Int32Array;
  #turn = 0;
  readonly #counted = new Set<number>();
  /** A position in the state that was worked on last. */
  #last = 0;
  readonly start: number;
  /** The grammar names tokens. */
  readonly hasTokens: boolean;

  constructor(positions: PositionTable, lexemes: Lexemes, of: Expressions) {
    super(of.byteSets);
    this.#of = of;
    this.#positions = positions;
    this.#lexemes = lexemes;
    this.#tokenSets = positions.tokenSets.map(({ ids }) => new Set(ids));
    this.hasTokens = positions.tokenSets.length > 0;
    this.#seen = new Int32Array(positions.first.length);
    this.start = this.#stateAt([positions.starts[0]!]);
  }

  /** Memory, about: the positions, and the states that were made of them so far. */
  get bytes(): number {
    return this.tableBytes + this.#positions.first.length * 64 + this.#data.length * 512;
  }

  /** The rule that was worked on last, for errors. */
  get ruleName(): string {
    return this.#positions.nameAt(this.#last);
  }

  /** The rules and lexemes that may begin in this state. */
  calls(state: number): readonly Call[] {
    const data = this.#data[state]!;
    if (data.calls === undefined) {
      data.finding ??= this.#beginCalls(data.edges);
      data.calls = this.#findCalls(data.finding);
      data.finding = undefined;
    }
    return data.calls;
  }

  tokenCalls(state: number): readonly TokenCall[] {
    const data = this.#data[state]!;
    data.tokens ??= data.edges
      .filter((edge) => this.#positions.kind[edge] === EDGE.token)
      .map((edge) => ({
        ids: this.#tokenSets[this.#positions.what[edge]!]!,
        except: this.#positions.tokenSets[this.#positions.what[edge]!]!.except,
        resume: this.#stateAt([this.#positions.to[edge]!]),
      }));
    return data.tokens;
  }

  #beginCalls(edges: readonly number[]): Finding {
    this.#of.meter.spend(edges.length / 2);
    const after = new Map<number, number[]>(); // by target
    for (const edge of edges) {
      const kind = this.#positions.kindOf(edge);
      if (kind === EDGE.token) continue;
      const called = this.#positions.targetOf(edge);
      const target = kind === EDGE.rule ? called : -1 - called;
      const to = this.#positions.toOf(edge);
      const list = after.get(target);
      if (list) list.push(to);
      else after.set(target, [to]);
    }
    return { targets: [...after].reverse(), calls: [], rules: new Map() };
  }

  #findCalls({ targets, calls, rules }: Finding): readonly Call[] {
    const { starts } = this.#positions;
    for (; targets.length > 0; targets.pop()) {
      const [target, positions] = targets.at(-1)!;
      const resume = this.#stateAt(positions);
      if (target >= 0) {
        const list = rules.get(resume);
        if (list) list.push(starts[target]!);
        else rules.set(resume, [starts[target]!]);
      } else {
        const start = this.#lexemes.stateOf(-1 - target);
        calls.push({ isLexeme: true, start, resume, isLast: this.#endsAt(resume) });
      }
      this.#of.meter.keep();
    }
    for (const [resume, positions] of rules) {
      calls.push({
        isLexeme: false,
        start: this.#stateAt(positions),
        resume,
        isLast: this.#endsAt(resume),
      });
      rules.delete(resume);
    }
    return calls;
  }

  #endsAt(state: number): boolean {
    return (this.flags[state]! & ENDS) !== 0;
  }

  #stateAt(positions: readonly number[]): number {
    return this.#close([], positions);
  }

  protected override follow(state: number, byte: number): number {
    const { items } = this.#data[state]!;
    this.#last = items[1] ?? this.#last;
    this.#of.meter.spend(1 + items.length / 16);
    const next: number[] = [];
    for (let i = 0; i < items.length; i += 2) {
      const expression = this.#of.derivative(items[i]!, byte);
      if (this.#of.alive(expression)) next.push(expression, items[i + 1]!);
    }
    return next.length === 0 ? 0 : this.#close(next, []);
  }

  protected override *fronts(state: number): Iterable<number> {
    const { items } = this.#data[state]!;
    this.#of.meter.spend(items.length / 16);
    const seen = new Set<number>();
    for (let i = 0; i < items.length; i += 2) {
      this.#of.meter.note(1 / 2);
      for (const set of this.#of.fronts(items[i]!)) {
        if (seen.has(set)) continue;
        seen.add(set);
        yield set;
      }
    }
  }

  /** The state of these items and positions, and of all positions that are reached from them without a byte. */
  #close(given: readonly number[], positions: readonly number[]): number {
    const { first, after, kind, what, to } = this.#positions;
    this.#of.meter.spend(1);
    const turn = ++this.#turn;
    const items = new Set<number>();
    const pairs: number[] = []; // expression * 2^31 + position
    const edges: number[] = [];
    const stack: number[] = [];
    let flags = 0;
    this.#counted.clear();
    const visit = (position: number): void => {
      if (position >= first.length) {
        if (this.#counted.has(position)) return;
        this.#counted.add(position);
      } else if (this.#seen[position] === turn) return;
      else this.#seen[position] = turn;
      stack.push(position);
    };
    const addItem = (expression: number, next: number): void => {
      if (this.#of.nullable(expression)) visit(next);
      const key = expression * PLACES + next;
      if (expression === EPSILON || items.has(key)) return;
      items.add(key);
      pairs.push(key);
    };
    for (let i = 0; i < given.length; i += 2) addItem(given[i]!, given[i + 1]!);
    for (const position of positions) visit(position);
    let steps = 0;
    while (stack.length > 0) {
      const position = stack.pop()!;
      steps++;
      if (position === END) flags |= FINAL;
      if (position >= first.length) {
        const { base, low, high, next } = this.#positions.counterAt(position);
        if (position - base! >= low) visit(next);
        if (position - base! < high) edges.push(this.#positions.itemEdge(position));
        continue;
      }
      this.#last = position;
      for (let edge = first[position]!; edge >= 0; edge = after[edge]!) {
        steps++;
        switch (kind[edge]) {
          case EDGE.counter:
            visit(this.#positions.counters[what[edge]!]!.base!);
            break;
          case EDGE.none:
            visit(to[edge]!);
            break;
          case EDGE.text:
            addItem(what[edge]!, to[edge]!);
            break;
          default:
            edges.push(edge);
            if (this.#positions.isFree(edge, this.#of)) visit(to[edge]!);
        }
      }
    }
    this.#of.meter.note(steps / 4);
    if (edges.length > 0) flags |= CALLS;
    else if (pairs.length === 0) flags |= ENDS;
    pairs.sort((a, b) => a - b);
    edges.sort((a, b) => a - b);
    const key = `${pairs.join()};${edges.join()};${flags}`;
    return this.#states.get(key) ?? this.#newState(key, pairs, edges, flags);
  }

  #newState(
    key: string,
    pairs: readonly number[],
    edges: readonly number[],
    flags: number,
  ): number {
    if (this.#data.length >= MOST_STATES) {
      throw new GrammarSizeError(`grammar: more than ${MOST_STATES} states. Use a simpler grammar`);
    }
    this.#of.meter.take(1100 + 16 * pairs.length + 8 * edges.length + 2 * key.length);
    const state = this.addState(flags);
    const items = new Int32Array(pairs.length * 2);
    for (const [i, pair] of pairs.entries()) {
      items[2 * i] = Math.floor(pair / PLACES);
      items[2 * i + 1] = pair % PLACES;
    }
    this.#data.push({ items, edges });
    this.#states.set(key, state);
    return state;
  }
}
