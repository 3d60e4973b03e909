// Rules for single template operations whose result could be too large. They are found in the parsed template before it is
// rendered: the nodes with a limit, the operands that it depends on, and the largest possible result. budget.ts applies the rules
// while it renders.
//
//   {{ list }}, list ~ text, list|tojson   a list that holds another twice, which holds another twice, ... is small in
//                                          memory and endless as text: it is measured first
//   text|replace, list|join, text|indent   as many pieces as the operand has, times the width of an argument
//   value in list                          as many comparisons as the list has entries
//
// Nodes and values are the library's own, plain objects told apart by `type`.

import { WRITTEN } from "./jinja-gaps.ts";

export interface Value {
  readonly type: string;
  readonly value: unknown;
}

export type Node = { type: string } & Record<string, unknown>;

/** The rest of the budget, and the part that was used so far. */
export interface Allowance {
  readonly unitsLeft: number;
  readonly unitsTaken: number;
  take(units: number): void;
  allow(units: number): void;
}

export interface NodeRule {
  /** Whether its value is written to the output as text. */
  isWritten: boolean;
  /** The operands that the limit depends on. */
  parts: readonly unknown[];
  /** Checks the operands that are evaluated so far; throws if the result would be too large. */
  limit: ((values: readonly (Value | undefined)[], budget: Allowance) => void) | undefined;
}

/** Creating a list costs some characters per entry. Using one costs less, because most uses read one entry. */
const MADE_ENTRY = 8;
const USED_ENTRY = 1 / 16;
/** Cost of an entry that becomes text, in addition to its own text. */
const WRITTEN_ENTRY = 16;
/** The depth to which nested lists are measured. */
const MEASURED_DEPTH = 200;

/** The cost of a node's value by itself, without the values inside it. */
export function unitsOf(node: Node | undefined, value: Value): number {
  const inner = value.value;
  if (typeof inner === "string") return inner.length;
  const entries = Array.isArray(inner) ? inner.length : inner instanceof Map ? inner.size : 0;
  return entries * (isUse(node) ? USED_ENTRY : MADE_ENTRY);
}

/** Whether the node is a name or a member: its value existed before. */
function isUse(node: Node | undefined): boolean {
  if (node?.type === "Identifier") return true;
  if (node?.type !== "MemberExpression") return false;
  return (node.property as Node).type !== "SliceExpression";
}

/**
 * Roughly the length of a list or an object as text; stops counting at `most`. Texts are counted where they are
 * created.
 */
export function textUnits(value: Value, most: number): number {
  return childrenOf(value.value) ? shapeOf(value, most).units : 0;
}

interface Shape {
  /** Characters, with the brackets and commas. */
  units: number;
  entries: number;
  depth: number;
}

function shapeOf(value: Value, most: number): Shape {
  const shape: Shape = { units: 0, entries: 0, depth: 0 };
  const waiting: { value: Value; depth: number }[] = [{ value, depth: 1 }];
  for (let next = waiting.pop(); next && shape.units <= most; next = waiting.pop()) {
    const inner = next.value.value;
    shape.units += WRITTEN_ENTRY + (typeof inner === "string" ? inner.length : 0);
    shape.entries++;
    shape.depth = Math.max(shape.depth, next.depth);
    if (next.depth > MEASURED_DEPTH) return { ...shape, units: Number.POSITIVE_INFINITY };
    for (const child of childrenOf(inner) ?? []) {
      waiting.push({ value: child, depth: next.depth + 1 });
    }
  }
  return shape;
}

function childrenOf(inner: unknown): Iterable<Value> | undefined {
  if (Array.isArray(inner)) return inner as Value[];
  return inner instanceof Map ? (inner as Map<string, Value>).values() : undefined;
}

/** An upper bound for the length of a text after replace(). */
export function replacedUnits(text: Value, old: Value | undefined, by: Value | undefined): number {
  if (typeof old?.value !== "string" || typeof by?.value !== "string") return 0;
  const matches = lengthOf(text) / Math.max(1, old.value.length) + 1;
  return matches * by.value.length;
}

function lengthOf(value: Value | undefined): number {
  const inner = value?.value;
  if (typeof inner === "string" || Array.isArray(inner)) return inner.length;
  return inner instanceof Map ? inner.size : 1;
}

function numberOf(value: Value | undefined): number {
  return typeof value?.value === "number" ? Math.max(value.value, 0) : 0;
}

type FilterLimit = (operand: Value, args: readonly (Value | undefined)[]) => number;

const widest = (args: readonly (Value | undefined)[]): number =>
  args.reduce((most, arg) => Math.max(most, numberOf(arg), arg ? textOf(arg) : 0), 0);
const textOf = (value: Value): number => (typeof value.value === "string" ? value.value.length : 0);

/** The limits of the results of filters, by the filter's name. */
const filterLimits: Readonly<Record<string, FilterLimit>> = {
  join: (operand, args) => lengthOf(operand) * widest(args),
  indent: (operand, args) => lengthOf(operand) * widest(args),
  replace: (operand, [old, by]) => replacedUnits(operand, old, by),
  tojson: (operand, args) => {
    if (args.length === 0) return 0;
    const { entries, depth } = shapeOf(operand, Number.MAX_SAFE_INTEGER); // measured before
    return entries * depth * widest(args);
  },
};

/** Filters that read or write everything inside their operand. */
const READS_ALL: ReadonlySet<unknown> = new Set(
  "tojson string join sort unique dictsort".split(" "),
);

/** The rules of all nodes that need one. */
export function findRules(program: unknown): Map<unknown, NodeRule> {
  const rules = new Map<unknown, NodeRule>();
  visit(program, rules);
  return rules;
}

function visit(tree: unknown, rules: Map<unknown, NodeRule>): void {
  if (Array.isArray(tree)) for (const item of tree) visit(item, rules);
  else if (tree instanceof Map) {
    for (const [key, value] of tree) {
      visit(key, rules);
      visit(value, rules);
    }
  } else if (typeof tree === "object" && tree !== null) {
    const node = tree as Node;
    const rule = Object.hasOwn(ruleMakers, node.type) ? ruleMakers[node.type]!(node) : undefined;
    if (rule) rules.set(node, { isWritten: rules.get(node)?.isWritten ?? false, ...rule });
    for (const statements of [node.body, node.alternate, node.defaultBlock]) {
      if (Array.isArray(statements)) for (const one of statements) markWritten(one as Node, rules);
    }
    for (const child of Object.values(node)) visit(child, rules);
  }
}

function markWritten(node: Node, rules: Map<unknown, NodeRule>): void {
  const isCall = (node.callee as Node | undefined)?.value === WRITTEN;
  const written = isCall ? (node.args as unknown[])[0] : node;
  rules.set(written, { isWritten: true, parts: [], limit: undefined });
}

type RuleMaker = (node: Node) => Pick<NodeRule, "parts" | "limit"> | undefined;

/** The library creates a scope for every iteration of a loop before the first one runs. */
const ROUND_UNITS = 100;

const ruleMakers: Readonly<Record<string, RuleMaker>> = {
  For: ({ iterable }) => {
    const { type, lhs } = iterable as Node;
    const limit: NodeRule["limit"] = ([list], budget) => {
      if (list) budget.take(lengthOf(list) * ROUND_UNITS);
    };
    return { parts: [type === "SelectExpression" ? lhs : iterable], limit };
  },
  FilterExpression: (node) => filterRule(node.filter as Node, node.operand),
  FilterStatement: (node) => filterRule(node.filter as Node, undefined),
  MemberExpression: ({ object, property, computed }) => {
    const { type, start, stop, step } = property as Node;
    const within = type === "SliceExpression" ? [start, stop, step] : computed ? [property] : [];
    return { parts: [object, ...within], limit: undefined };
  },
  BinaryExpression: ({ operator, left, right }) => {
    const sign = (operator as { value: string }).value;
    const parts = [left, right];
    if (sign === "+") return { parts, limit: limitJoined };
    if (sign === "~") return { parts, limit: limitWritten };
    return sign === "in" || sign === "not in" ? { parts, limit: limitSearch } : undefined;
  },
};

/** `operand` is undefined for a filter block: only its cost so far is known. */
function filterRule(filter: Node, operand: unknown): ReturnType<RuleMaker> {
  const isCall = filter.type === "CallExpression";
  const name = isCall ? (filter.callee as Node).value : filter.value;
  const nodes = isCall ? (filter.args as Node[]) : [];
  const args = nodes.map((arg) => (arg.type === "KeywordArgumentExpression" ? arg.value : arg));
  const widen = Object.hasOwn(filterLimits, String(name)) ? filterLimits[String(name)] : undefined;
  const limit: NodeRule["limit"] = ([value, ...given], budget) => {
    if (operand === undefined) {
      budget.allow(budget.unitsTaken * (widen ? widest(given) : 0));
      return;
    }
    if (!value) return;
    if (READS_ALL.has(name) && given.length === 0) budget.take(textUnits(value, budget.unitsLeft));
    if (widen) budget.allow(widen(value, given));
  };
  return { parts: [operand, ...args], limit };
}

/** Two lists are joined to a third; any other pair becomes text. */
function limitJoined(values: readonly (Value | undefined)[], budget: Allowance): void {
  if (!values.every((value) => value && Array.isArray(value.value))) limitWritten(values, budget);
}

function limitWritten([left, right]: readonly (Value | undefined)[], budget: Allowance): void {
  if (!left || !right) return;
  budget.take(textUnits(left, budget.unitsLeft));
  budget.take(textUnits(right, budget.unitsLeft));
}

function limitSearch([left, right]: readonly (Value | undefined)[], budget: Allowance): void {
  if (left && Array.isArray(right?.value)) budget.take(textOf(left) * right.value.length);
}

export interface InputSize {
  /** The number of values. */
  values: number;
  /** Characters of texts. */
  units: number;
}

/** The size of a template's input. */
export function inputSize(data: unknown): InputSize {
  const size = { values: 0, units: 0 };
  const waiting: unknown[] = [data];
  while (waiting.length > 0) {
    const next = waiting.pop();
    size.values++;
    if (typeof next === "string") size.units += next.length;
    else if (typeof next === "object" && next !== null) {
      for (const inner of Object.values(next)) waiting.push(inner);
    }
  }
  return size;
}
