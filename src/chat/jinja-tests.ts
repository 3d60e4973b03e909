// Jinja's tests (`x is odd`, `x is divisibleby(3)`, `list|select("in", others)`) on the values of @huggingface/jinja, which
// knows a part of them and none with arguments. Names and meanings are Jinja's.

import type { JinjaValue } from "./jinja-values.ts";

type Test = (value: JinjaValue | undefined, args: readonly JinjaValue[]) => boolean;

const isNumber = ({ type }: JinjaValue): boolean =>
  type === "IntegerValue" || type === "FloatValue";
const ofType =
  (...types: string[]): Test =>
  (value) =>
    types.includes(value?.type ?? "UndefinedValue");

const text = (value: JinjaValue | undefined): string => String(value?.value ?? "");

const equal: Test = (value, [other]) => isEqual(value, other);
const compare =
  (holds: (a: number | string, b: number | string) => boolean): Test =>
  (value, [other]) => {
    const [a, b] = [value?.value, other?.value];
    if (typeof a === "number" && typeof b === "number") return holds(a, b);
    if (typeof a === "string" && typeof b === "string") return holds(a, b);
    throw new Error(`cannot compare ${value?.type ?? "nothing"} with ${other?.type ?? "nothing"}`);
  };
const greater = compare((a, b) => a > b);
const less = compare((a, b) => a < b);
const iterable = ofType(
  "StringValue",
  "ArrayValue",
  "TupleValue",
  "ObjectValue",
  "NamespaceValue",
  "UndefinedValue",
);

const tests: ReadonlyMap<string, Test> = new Map<string, Test>([
  ["defined", (value) => value !== undefined && value.type !== "UndefinedValue"],
  ["undefined", ofType("UndefinedValue")],
  ["none", ofType("NullValue")],
  ["boolean", ofType("BooleanValue")],
  ["true", (value) => value?.value === true],
  ["false", (value) => value?.value === false],
  ["string", ofType("StringValue")],
  ["number", ofType("IntegerValue", "FloatValue")],
  ["integer", ofType("IntegerValue")],
  ["float", ofType("FloatValue")],
  ["mapping", ofType("ObjectValue", "NamespaceValue")],
  ["iterable", iterable],
  ["sequence", iterable],
  ["callable", ofType("FunctionValue")],
  ["odd", (value) => Math.abs(Number(value?.value) % 2) === 1],
  ["even", (value) => Number(value?.value) % 2 === 0],
  ["lower", (value) => text(value) === text(value).toLowerCase()],
  ["upper", (value) => text(value) === text(value).toUpperCase()],
  ["divisibleby", (value, [by]) => Number(value?.value) % Number(by?.value) === 0],
  ["eq", equal],
  ["equalto", equal],
  ["==", equal],
  ["ne", (value, args) => !equal(value, args)],
  ["!=", (value, args) => !equal(value, args)],
  ["gt", greater],
  ["greaterthan", greater],
  [">", greater],
  ["lt", less],
  ["lessthan", less],
  ["<", less],
  ["ge", (value, args) => !less(value, args)],
  [">=", (value, args) => !less(value, args)],
  ["le", (value, args) => !greater(value, args)],
  ["<=", (value, args) => !greater(value, args)],
  ["sameas", (value, [other]) => value?.type === other?.type && value?.value === other?.value],
  ["in", (value, [list]) => isIn(value, list)],
]);

/** Tests of the library that answer otherwise than Jinja's, or that it does not know. */
export const OWN_TESTS: ReadonlySet<string> = new Set(["float", "sequence", "iterable"]);

export const testNames = (): readonly string[] => [...tests.keys()];

export function isTrue(
  name: string,
  value: JinjaValue | undefined,
  args: readonly JinjaValue[],
): boolean {
  const test = tests.get(name);
  if (test === undefined) throw new Error(`Unknown test: ${name}`);
  return test(value, args);
}

/** The truth of a value, as `if` sees it. */
export function truth(value: JinjaValue | undefined): boolean {
  const inner = value?.value;
  if (Array.isArray(inner)) return inner.length > 0;
  return inner instanceof Map ? inner.size > 0 : Boolean(inner);
}

/** Python's ==, where 1 is 1.0 and true. */
function isEqual(a: JinjaValue | undefined, b: JinjaValue | undefined): boolean {
  const [left, right] = [a?.value, b?.value];
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((item, at) => isEqual(item, right[at]));
  }
  if (left instanceof Map && right instanceof Map) {
    return (
      left.size === right.size && [...left].every(([key, item]) => isEqual(item, right.get(key)))
    );
  }
  const isTruthValue = typeof left === "boolean" || typeof right === "boolean";
  const areNumbers = [a, b].every(
    (value) => value?.type === "BooleanValue" || (value && isNumber(value)),
  );
  if (isTruthValue && areNumbers) return Number(left) === Number(right);
  return left === right;
}

function isIn(value: JinjaValue | undefined, list: JinjaValue | undefined): boolean {
  const inner = list?.value;
  if (typeof inner === "string") return inner.includes(text(value));
  if (Array.isArray(inner)) return inner.some((item: JinjaValue) => isEqual(value, item));
  if (inner instanceof Map) return inner.has(text(value));
  throw new Error(`expected a list to look in, got ${list?.type ?? "nothing"}`);
}
