// The values that a schema allows, as a list of shapes: one type each, with its constraints joined. A value matches the schema if
// it matches one of the shapes.
//
// The schemas of properties and items stay numbers until they are needed (`Both`), so that recursive schemas end.

import { INFINITE } from "../regex/expressions.ts";

/** Schemas that must all hold: n for schema n - 1, -n where it must not hold. Ascending. Empty: anything. */
export type Both = readonly number[];
/** undefined: no value matches. */
export type MaybeBoth = Both | undefined;

export interface NumberShape {
  readonly type: "number";
  readonly integer: boolean;
  /** Only numbers that are not integers. */
  readonly fraction: boolean;
  readonly low: number;
  readonly lowExclusive: boolean;
  readonly high: number;
  readonly highExclusive: boolean;
  readonly multiples: readonly number[];
  /** Integers of which it is no multiple. */
  readonly nonMultiples: readonly number[];
}

export interface StringShape {
  readonly type: "string";
  readonly low: number;
  readonly high: number;
  /** Expressions over the characters inside the quotes. */
  readonly languages: readonly number[];
}

export interface ArrayLayer {
  readonly prefix: readonly MaybeBoth[];
  readonly rest: MaybeBoth;
  /** Speaks of all items, so that none is left to unevaluatedItems. */
  readonly isWhole?: boolean;
  /** Made by negating a schema: it evaluates no properties. */
  readonly isOpposite?: boolean;
}

export interface ArrayShape {
  readonly type: "array";
  readonly layers: readonly ArrayLayer[];
  readonly low: number;
  readonly high: number;
  /** So many items for which `both` holds. */
  readonly contains: readonly {
    readonly both: MaybeBoth;
    readonly low: number;
    readonly high: number;
  }[];
  readonly unique: boolean;
  readonly path: string;
}

/** Keys with characters in `language`, and their values. */
export interface KeyRule {
  readonly language: number;
  readonly both: MaybeBoth;
}

export interface ObjectLayer {
  readonly properties: ReadonlyMap<string, MaybeBoth>;
  readonly patterns: readonly KeyRule[];
  readonly rest: MaybeBoth;
  /** Speaks of all keys, so that none is left to unevaluatedProperties. */
  readonly isWhole?: boolean;
  /** Made by negating a schema: it evaluates no items. */
  readonly isOpposite?: boolean;
}

export interface ObjectShape {
  readonly type: "object";
  readonly layers: readonly ObjectLayer[];
  readonly required: readonly string[];
  readonly low: number;
  readonly high: number;
  /** Schemas of the keys. */
  readonly names: readonly MaybeBoth[];
  /** Rules that each have at least one key in the object. */
  readonly some: readonly KeyRule[];
  readonly path: string;
}

export type Shape =
  | { readonly type: "null" }
  | { readonly type: "boolean" }
  | { readonly type: "const"; readonly value: unknown }
  | NumberShape
  | StringShape
  | ArrayShape
  | ObjectShape;

export const ANY_NUMBER: NumberShape = {
  type: "number",
  integer: false,
  fraction: false,
  low: -INFINITE,
  lowExclusive: false,
  high: INFINITE,
  highExclusive: false,
  multiples: [],
  nonMultiples: [],
};
export const ANY_STRING: StringShape = { type: "string", low: 0, high: INFINITE, languages: [] };
export const ANY_ARRAY: ArrayShape = {
  type: "array",
  layers: [],
  low: 0,
  high: INFINITE,
  contains: [],
  unique: false,
  path: "#",
};
export const ANY_OBJECT: ObjectShape = {
  type: "object",
  layers: [],
  required: [],
  low: 0,
  high: INFINITE,
  names: [],
  some: [],
  path: "#",
};

export const ANYTHING: readonly Shape[] = [
  { type: "null" },
  { type: "boolean" },
  ANY_NUMBER,
  ANY_STRING,
  ANY_ARRAY,
  ANY_OBJECT,
];

/** Objects that do not have this key. */
export function withoutKey(key: string): Shape {
  return { ...ANY_OBJECT, layers: [oppositeOf(key, undefined)] };
}

/** A layer about one key that evaluates no properties. */
export function oppositeOf(key: string, value: MaybeBoth): ObjectLayer {
  return { properties: new Map([[key, value]]), patterns: [], rest: [], isOpposite: true };
}

export function both(a: MaybeBoth, b: MaybeBoth): MaybeBoth {
  if (a === undefined || b === undefined) return undefined;
  if (a.length === 0) return b;
  if (b.length === 0) return a;
  return [...new Set([...a, ...b])].sort((x, y) => x - y);
}

/** Two shapes of the same type at once; undefined if no value has both. Constants are the caller's business. */
export function joinShapes(a: Shape, b: Shape): Shape | undefined {
  if (a.type === "number" && b.type === "number") return joinNumbers(a, b);
  if (a.type === "string" && b.type === "string") {
    const low = Math.max(a.low, b.low);
    const high = Math.min(a.high, b.high);
    const languages = [...new Set([...a.languages, ...b.languages])];
    return low > high ? undefined : { type: "string", low, high, languages };
  }
  if (a.type === "array" && b.type === "array") {
    const low = Math.max(a.low, b.low);
    const high = Math.min(a.high, b.high);
    if (low > high) return undefined;
    return {
      type: "array",
      layers: [...a.layers, ...b.layers],
      low,
      high,
      contains: [...a.contains, ...b.contains],
      unique: a.unique || b.unique,
      path: a.path === "#" ? b.path : a.path,
    };
  }
  if (a.type === "object" && b.type === "object") {
    const low = Math.max(a.low, b.low);
    const high = Math.min(a.high, b.high);
    if (low > high) return undefined;
    return {
      type: "object",
      layers: [...new Set([...a.layers, ...b.layers])],
      required: [...new Set([...a.required, ...b.required])],
      low,
      high,
      names: [...a.names, ...b.names],
      some: [...new Set([...a.some, ...b.some])],
      path: a.path === "#" ? b.path : a.path,
    };
  }
  return a.type === b.type ? a : undefined;
}

function joinNumbers(a: NumberShape, b: NumberShape): NumberShape | undefined {
  const lowest = a.low > b.low || (a.low === b.low && a.lowExclusive) ? a : b;
  const highest = a.high < b.high || (a.high === b.high && a.highExclusive) ? a : b;
  const shape: NumberShape = {
    type: "number",
    integer: a.integer || b.integer,
    fraction: a.fraction || b.fraction,
    low: lowest.low,
    lowExclusive: lowest.lowExclusive,
    high: highest.high,
    highExclusive: highest.highExclusive,
    multiples: [...new Set([...a.multiples, ...b.multiples])],
    nonMultiples: [...new Set([...a.nonMultiples, ...b.nonMultiples])],
  };
  return isEmptyNumber(shape) ? undefined : shape;
}

export function isEmptyNumber(shape: NumberShape): boolean {
  if (shape.integer && shape.fraction) return true;
  const { low, high, lowExclusive, highExclusive } = shape;
  if (low > high || (low === high && (lowExclusive || highExclusive))) return true;
  if (!shape.integer) return false;
  const first = Number.isFinite(low) ? (lowExclusive ? Math.floor(low) + 1 : Math.ceil(low)) : low;
  const last = Number.isFinite(high)
    ? highExclusive
      ? Math.ceil(high) - 1
      : Math.floor(high)
    : high;
  return first > last;
}

/** A layer's constraint on the value of a key. `matches` tells whether a key matches a pattern. */
export function valueOfKey(
  layer: ObjectLayer,
  key: string,
  matches: (language: number, key: string) => boolean,
): MaybeBoth {
  let value: MaybeBoth = [];
  let isKnown = false;
  if (layer.properties.has(key)) {
    value = layer.properties.get(key);
    isKnown = true;
  }
  for (const pattern of layer.patterns) {
    if (!matches(pattern.language, key)) continue;
    value = both(value, pattern.both);
    isKnown = true;
  }
  return isKnown ? value : layer.rest;
}

export function valueOfItem(layers: readonly ArrayLayer[], index: number): MaybeBoth {
  let value: MaybeBoth = [];
  for (const layer of layers) {
    value = both(value, index < layer.prefix.length ? layer.prefix[index] : layer.rest);
  }
  return value;
}

export function equalValues(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  return keys.every((key) => Object.hasOwn(right, key) && equalValues(left[key], right[key]));
}
