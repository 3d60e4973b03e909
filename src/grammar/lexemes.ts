// The automaton of all lexemes of a vocabulary: strings, numbers, patterns. A state is the rest of an expression.
//
// Lexemes call no rules and know nothing of the grammar around them, so their states and walks are shared by all grammars.

import { Automaton, ENDS, FINAL } from "./automaton.ts";
import { EMPTY, EPSILON, type Expressions } from "./regex/expressions.ts";

/** Memory of a state, about. */
const STATE_BYTES = 1200;

export class Lexemes extends Automaton {
  readonly #of: Expressions;
  readonly #states: Map<number, number> = new Map();
  readonly #expressions: number[] = [EMPTY];
  /** [states]: the state without its upper bounds, and the bytes for which both behave alike. */
  readonly loose: number[] = [0];
  readonly bound: number[] = [0];

  constructor(of: Expressions) {
    super(of.byteSets);
    this.#of = of;
  }

  stateOf(expression: number): number {
    if (!this.#of.alive(expression)) return 0;
    let state = this.#states.get(expression);
    if (state === undefined) {
      this.#of.meter.spend(1);
      this.#of.meter.take(STATE_BYTES);
      const loosened = this.#of.loosened(expression);
      const flags = expression === EPSILON ? FINAL | ENDS : FINAL;
      state = this.addState(this.#of.nullable(expression) ? flags : 0);
      this.#states.set(expression, state);
      this.#expressions.push(expression);
      this.loose.push(state);
      this.bound.push(0);
      if (loosened.expression !== expression) {
        this.loose[state] = this.stateOf(loosened.expression);
        this.bound[state] = loosened.bound;
      }
    }
    return state;
  }

  protected override follow(state: number, byte: number): number {
    return this.stateOf(this.#of.derivative(this.#expressions[state]!, byte));
  }

  protected override fronts(state: number): readonly number[] {
    return this.#of.fronts(this.#expressions[state]!);
  }
}
