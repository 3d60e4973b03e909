// A budget for rendering a chat template. The template comes with the model, so it may be broken or hostile: loops within
// loops, range(1e9), texts and lists that double at every step, macros that call themselves.
//
// The library has no limits of its own, and one hook that sees all work: Interpreter.evaluate() is called for every node of the
// program, also by the interpreter itself. The override here counts a step per node, adds up the sizes of all values (so searching
// a long text a thousand times costs a thousand times its length), and checks from time to time whether the work should stop.
// Single operations whose result would be too large are refused beforehand (budget-rules.ts). The budget grows with the
// conversation, because every message costs something.

import * as jinja from "@huggingface/jinja";
import type { Check } from "../base/check.ts";
import type { RenderedPrompt } from "../base/rendered-prompt.ts";
import {
  findRules,
  type InputSize,
  inputSize,
  type Node,
  type NodeRule,
  replacedUnits,
  textUnits,
  unitsOf,
  type Value,
} from "./budget-rules.ts";
import { gapFunctions } from "./jinja-functions.ts";
import type { JinjaFunction, JinjaValue } from "./jinja-values.ts";
import {
  concat,
  giveJoined,
  giveToTemplate,
  type Marked,
  markChange,
  markedOf,
  markNode,
  rendered,
} from "./marks.ts";
import type { Tag } from "./tags.ts";
import { renderError, Stopped } from "./template-errors.ts";

/**
 * Real templates take some hundred steps per message and read each text about ten times. Templates that compare every
 * message with every other take a million steps for a thousand messages. A short conversation has a small budget
 * because it is rendered on the engine's thread, where others wait.
 */
const STEPS = 20_000;
const STEPS_PER_VALUE = 2_000;
/** Values that every template gets, in any conversation. */
const CONSTANT_VALUES = 12;
const UNITS = 32_000_000;
const UNITS_PER_UNIT = 200;
const UNITS_PER_VALUE = 20_000;
/** Upper limits for any conversation: seconds of work, and sizes that fit in memory. */
const MOST_STEPS = 10_000_000;
const MOST_UNITS = 4_000_000_000;
/** A number in a list takes the memory of this many characters. */
const NUMBER_UNITS = 16;
/** Nested nodes and macro calls: far below the limit of JavaScript's own stack. */
const DEPTH = 400;
/** Steps between two checks whether to stop. */
const CHECK_STEPS = 4096;

/**
 * The part of the library's classes that is used here. TypeScript does not find the files that the library's own
 * declarations name.
 */
interface Scope {
  set(name: string, value: unknown): Value;
}
interface Evaluator {
  evaluate(node: Node | undefined, scope: Scope): Value;
  evaluateBlock(statements: readonly Node[], scope: Scope): Value;
  run(program: unknown): Value;
}
const Environment = jinja.Environment as unknown as new () => Scope;
const Interpreter = jinja.Interpreter as unknown as new (scope: Scope) => Evaluator;

/** The budget of one rendering. */
class Budget {
  readonly #steps: number;
  readonly #units: number;
  readonly #check: Check;
  #stepsTaken = 0;
  #unitsTaken = 0;

  constructor(input: InputSize, check: Check) {
    const { values, units } = input;
    const said = Math.max(0, values - CONSTANT_VALUES);
    this.#steps = Math.min(MOST_STEPS, STEPS + STEPS_PER_VALUE * said);
    // The last term is for templates that append every message to a text and read it again.
    const all = UNITS + UNITS_PER_UNIT * units + UNITS_PER_VALUE * values + 2 * values * units;
    this.#units = Math.min(MOST_UNITS, all);
    this.#check = check;
  }

  get unitsTaken(): number {
    return this.#unitsTaken;
  }

  get unitsLeft(): number {
    return this.#units - this.#unitsTaken;
  }

  step(): void {
    if (++this.#stepsTaken > this.#steps) {
      throw new Stopped(`it takes more than ${this.#steps} steps, because its loops run too long`);
    }
    if (this.#stepsTaken % CHECK_STEPS === 0) this.#check();
  }

  /** Counts values with this many characters or entries. */
  take(units: number): void {
    this.#unitsTaken += units;
    this.allow(0);
  }

  /** Refuses a result that would be too large; does not count it. */
  allow(units: number): void {
    if (this.#unitsTaken + units <= this.#units) return;
    throw new Stopped(`its texts and lists have more than ${this.#units} characters and entries`);
  }
}

/** A parsed template that is rendered within a budget. */
export class BudgetedProgram {
  readonly #program: unknown;
  readonly #rules: ReadonlyMap<unknown, NodeRule>;

  readonly #places: ReadonlyMap<unknown, Tag>;

  /** `places`: the tags of the entries of blocks. */
  constructor(program: unknown, places: ReadonlyMap<unknown, Tag>) {
    this.#program = program;
    this.#places = places;
    this.#rules = findRules(program);
  }

  /**
   * Renders the template; throws a ModelError if it costs more than this conversation allows. `own`: texts that are the template's,
   * as if they stood in it; the texts in `variables` are people's words, but for the roles of messages.
   */
  render(
    variables: Readonly<Record<string, unknown>>,
    own: Readonly<Record<string, string>>,
    functions: Readonly<Record<string, (...args: never[]) => unknown>>,
    check: Check = () => {},
  ): RenderedPrompt {
    let interpreter: BudgetedInterpreter | undefined;
    try {
      const given = { ...own, ...variables };
      const budget = new Budget(inputSize(given), check);
      const environment = new Environment();
      const range = (...args: number[]) => budgetedRange(budget, args);
      const all = { ...constants, range, ...given, ...functions };
      for (const [name, value] of Object.entries(all)) {
        const made = environment.set(name, value);
        if (Object.hasOwn(own, name) && !Object.hasOwn(variables, name)) giveToTemplate(made);
        if (name === "messages") markRoles(made);
      }
      const wrap = (value: unknown): JinjaValue => new Environment().set("value", value);
      for (const [name, call] of Object.entries(gapFunctions(budget, wrap))) {
        const made = environment.set(name, () => null) as unknown as { value: JinjaFunction };
        made.value = call; // without the library's conversion, which unwraps one level only
      }
      interpreter = new BudgetedInterpreter(environment, budget, this.#rules, this.#places);
      return rendered(interpreter.run(this.#program));
    } catch (error) {
      throw renderError(error, interpreter?.failed?.tag, interpreter?.failed?.node);
    }
  }
}

const constants = { true: true, false: false, none: null, True: true, False: false, None: null };

/** Python's range(). */
function budgetedRange(budget: Budget, [first = 0, second, step = 1]: readonly number[]): number[] {
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  const count = Math.max(0, Math.ceil((stop - start) / step));
  if (!Number.isFinite(count)) throw new Error("range() needs numbers and a step other than 0");
  budget.take(count * NUMBER_UNITS);
  return Array.from({ length: count }, (_, i) => start + i * step);
}

/** Templates make special tokens of these: '<|' + role + '|>'. */
const ROLES: ReadonlySet<unknown> = new Set(
  "system developer user assistant model tool function ipython environment observation".split(" "),
);

function markRoles(messages: Value): void {
  for (const message of Array.isArray(messages.value) ? (messages.value as Value[]) : []) {
    const role = message.value instanceof Map ? (message.value.get("role") as Value) : undefined;
    if (role && ROLES.has(role.value)) giveToTemplate(role);
  }
}

const StringValue = new Environment().set("text", "").constructor as new (text: string) => Value;

/** A node that is being evaluated, and the values of its operands so far, in the order of rule.parts. */
interface Frame {
  readonly rule: NodeRule;
  readonly values: (Value | undefined)[];
}

class BudgetedInterpreter extends Interpreter {
  readonly #budget: Budget;
  readonly #rules: ReadonlyMap<unknown, NodeRule>;
  readonly #frames: Frame[] = [];
  /** For each node that is being evaluated, the texts of its own blocks so far, if they are to be joined. */
  readonly #blocks: (Value[] | undefined)[] = [];
  /** String methods that already have a limit. */
  readonly #limited = new WeakSet<object>();
  readonly #places: ReadonlyMap<unknown, Tag>;
  #depth = 0;
  #tag: Tag | undefined;
  /** The innermost node that the last error came through, and where it is. */
  failed: { error: unknown; node: Node | undefined; tag: Tag | undefined } | undefined;

  constructor(
    environment: Scope,
    budget: Budget,
    rules: ReadonlyMap<unknown, NodeRule>,
    places: ReadonlyMap<unknown, Tag>,
  ) {
    super(environment);
    this.#budget = budget;
    this.#rules = rules;
    this.#places = places;
  }

  override evaluate(node: Node | undefined, environment: Scope): Value {
    const outer = this.#tag;
    this.#tag = this.#places.get(node) ?? outer;
    try {
      return this.#evaluateCounted(node, environment);
    } catch (error) {
      if (this.failed?.error !== error) this.failed = { error, node, tag: this.#tag };
      throw error;
    } finally {
      this.#tag = outer;
    }
  }

  #evaluateCounted(node: Node | undefined, environment: Scope): Value {
    this.#budget.step();
    const rule = this.#rules.get(node);
    const frame: Frame | undefined = rule && { rule, values: [] };
    if (frame) this.#frames.push(frame);
    if (++this.#depth > DEPTH) {
      throw new Stopped(
        `it is nested more than ${DEPTH} levels deep, perhaps because a macro calls itself`,
      );
    }
    const blocks: Value[] | undefined = node?.type === "For" ? [] : undefined;
    this.#blocks.push(blocks);
    let value: Value;
    try {
      value = super.evaluate(node, environment);
    } finally {
      this.#depth--; // "break" is thrown, too
      this.#blocks.pop();
      if (frame) this.#frames.pop();
    }
    if (blocks) giveJoined(value, concat(blocks.map(markedOf)));
    else if (node) markNode(node, frame?.values ?? [], value);
    this.#budget.take(unitsOf(node, value));
    if (rule?.isWritten) this.#budget.take(textUnits(value, this.#budget.unitsLeft));
    if (frame?.values[0]) this.#limitMethod(value, frame.values[0], node);
    this.#tellParent(node, value);
    return value;
  }

  /** As the library's, with marks. Called by the library for every node with statements in it. */
  override evaluateBlock(statements: readonly Node[], environment: Scope): Value {
    const parts: Marked[] = [];
    for (const statement of statements) {
      parts.push(markedOf(this.evaluate(statement, environment)));
    }
    const all = concat(parts);
    const value = giveJoined(new StringValue(all.text), all);
    this.#blocks.at(-1)?.push(value);
    return value;
  }

  /** Records the value for the parent node, which may have a limit that refuses it. */
  #tellParent(node: Node | undefined, value: Value): void {
    const frame = this.#frames.at(-1);
    const at = frame?.rule.parts.indexOf(node) ?? -1;
    if (!frame || at < 0) return;
    frame.values[at] = value;
    frame.rule.limit?.(frame.values, this.#budget);
  }

  /** Limits text.replace and its like, however the template got hold of the method, and marks their results. */
  #limitMethod(method: Value, text: Value, node: Node | undefined): void {
    if (method.type !== "FunctionValue" || text.type !== "StringValue") return;
    if (this.#limited.has(method)) return;
    this.#limited.add(method);
    const made = method as unknown as { value: (args: Value[], scope: Scope) => Value };
    const call = made.value;
    made.value = (args, scope) => {
      this.#budget.allow(replacedUnits(text, args[0], args[1]));
      const result = call(args, scope);
      markChange((node?.property as Node | undefined)?.value, text, args, result);
      return result;
    };
  }
}
