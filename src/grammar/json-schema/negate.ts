// The shapes of values that do not match a schema, for not, if and oneOf: each keyword turned around, and any one of them
// suffices. A keyword whose opposite has no grammar is refused by name.

import { byName } from "../../base/by-name.ts";
import { INFINITE } from "../regex/expressions.ts";
import type { SchemaObject } from "./documents.ts";
import { ANNOTATIONS } from "./keywords.ts";

import {
  ANY_ARRAY,
  ANY_NUMBER,
  ANY_OBJECT,
  ANY_STRING,
  ANYTHING,
  both,
  type MaybeBoth,
  type NumberShape,
  oppositeOf,
  type Shape,
  withoutKey,
} from "./shapes.ts";
import type { ShapesOf } from "./shapes-of.ts";

type Negate = (of: ShapesOf, schema: SchemaObject, keyword: string) => readonly Shape[];

export function negativeShapes(of: ShapesOf, schema: SchemaObject): readonly Shape[] {
  const isRefAlone = typeof schema.$ref === "string" && of.documents.isLegacy;
  const keywords = isRefAlone ? ["$ref"] : Object.keys(schema);
  const parts: (readonly Shape[])[] = [];
  for (const keyword of keywords) {
    if (ANNOTATIONS.has(keyword) || IGNORED.has(keyword)) continue;
    const negate = NEGATE[keyword];
    if (negate) parts.push(negate(of, schema, keyword));
    else if (REFUSED.has(keyword)) {
      throw of.own.wrong(schema, keyword, "the opposite of this keyword is not supported");
    }
  }
  // An opposite of min or max speaks only of its own type, which the schema's type already allows.
  return of.add(parts);
}

const IGNORED: ReadonlySet<string> = new Set([
  "additionalItems", // with items
  "else",
  "maxContains", // with contains
  "minContains",
  "then",
]);
const REFUSED: ReadonlySet<string> = new Set([
  "dependencies",
  "dependentSchemas",
  "unevaluatedItems",
  "unevaluatedProperties",
  "uniqueItems",
]);

const never: MaybeBoth = undefined;

function negateType(of: ShapesOf, schema: SchemaObject): readonly Shape[] {
  const types = of.own.types(schema);
  const shapes: Shape[] = ANYTHING.filter(({ type }) => !types.includes(type));
  if (!types.includes("integer")) return shapes;
  return shapes.map((shape) =>
    shape.type === "number" ? { ...ANY_NUMBER, fraction: true } : shape,
  );
}

/** Everything but these values. */
function negateValues(of: ShapesOf, schema: SchemaObject, keyword: string): readonly Shape[] {
  const values = keyword === "const" ? [schema.const] : (schema.enum as unknown[]);
  if (!Array.isArray(values)) throw of.own.wrong(schema, keyword, "expected a list");
  const strings = values.filter((value) => typeof value === "string");
  const numbers = values.filter((value) => typeof value === "number").sort((a, b) => a - b);
  const shapes: Shape[] = [ANY_ARRAY, ANY_OBJECT];
  if (!values.includes(null)) shapes.push({ type: "null" });
  const booleans = [true, false].filter((value) => !values.includes(value));
  for (const value of booleans) shapes.push({ type: "const", value });
  const languages = strings.length === 0 ? [] : [of.strings.not(of.strings.oneOf(strings))];
  shapes.push({ ...ANY_STRING, languages });
  let low = -INFINITE;
  for (const high of [...new Set(numbers), INFINITE]) {
    const isFirst = low === -INFINITE;
    const shape: NumberShape = {
      ...ANY_NUMBER,
      low,
      lowExclusive: !isFirst,
      high,
      highExclusive: high !== INFINITE,
    };
    shapes.push(shape);
    low = high;
  }
  return values
    .filter((value) => typeof value === "object" && value !== null)
    .map((value) => negativeShapes(of, schemaOf(value as object)))
    .reduce((a, b) => of.join(a, b), shapes);
}

/** A schema for this list or object alone. */
function schemaOf(value: object): SchemaObject {
  const only = (item: unknown): SchemaObject => ({ const: item });
  if (Array.isArray(value)) {
    const items = { prefixItems: value.map(only), items: false, minItems: value.length };
    return { type: "array", ...items };
  }
  const keys = Object.keys(value);
  const properties = Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, only(item)]),
  );
  return { type: "object", properties, required: keys, additionalProperties: false };
}

/** Numbers with a fraction, and integers that leave a remainder. */
function negateMultiple(of: ShapesOf, schema: SchemaObject, keyword: string): readonly Shape[] {
  const divisor = bound(keyword, schema, of);
  if (!Number.isInteger(divisor) || divisor <= 0) {
    throw of.own.wrong(
      schema,
      keyword,
      "the opposite of a multiple of a fraction is not supported",
    );
  }
  const rest: NumberShape = { ...ANY_NUMBER, integer: true, nonMultiples: [divisor] };
  return divisor === 1
    ? [{ ...ANY_NUMBER, fraction: true }]
    : [{ ...ANY_NUMBER, fraction: true }, rest];
}

function negateProperties(of: ShapesOf, schema: SchemaObject): readonly Shape[] {
  return of.own.entries(schema, "properties").flatMap(([key, value]) => {
    const opposite = of.turned(of.own.sub(value, schema, `properties/${key}`));
    if (opposite === undefined) return [];
    return [{ ...ANY_OBJECT, layers: [oppositeOf(key, opposite)], required: [key] }];
  });
}

/** One of the first items that does not fit, or one of the others. */
function negateItems(of: ShapesOf, schema: SchemaObject): readonly Shape[] {
  const layer = of.own.array({ ...schema, minItems: 0, maxItems: INFINITE })?.layers[0];
  if (layer === undefined) return [];
  const { prefix, rest } = layer;
  const shapes: Shape[] = prefix.flatMap((item, i) => {
    const opposite = of.turned(item);
    if (opposite === undefined) return [];
    const before = Array.from({ length: i }, (): MaybeBoth => []);
    const only = { prefix: [...before, opposite], rest: [], isOpposite: true };
    return [{ ...ANY_ARRAY, layers: [only], low: i + 1 }];
  });
  const other = of.turned(rest);
  if (other === undefined) return shapes;
  if (rest === undefined) return [...shapes, { ...ANY_ARRAY, low: prefix.length + 1 }];
  if (prefix.length > 0) {
    throw of.own.wrong(schema, "items", "the opposite of items after a list is not supported");
  }
  return [...shapes, { ...ANY_ARRAY, contains: [{ both: other, low: 1, high: INFINITE }], low: 1 }];
}

/** Fewer items than minContains, or more than maxContains. */
function negateContains(of: ShapesOf, schema: SchemaObject): readonly Shape[] {
  return of.own.contains(schema).flatMap(({ both: one, low, high }): Shape[] => {
    const few: Shape = { ...ANY_ARRAY, contains: [{ both: one, low: 0, high: low - 1 }] };
    const many: Shape = { ...ANY_ARRAY, contains: [{ both: one, low: high + 1, high: INFINITE }] };
    return [...(low > 0 ? [few] : []), ...(high === INFINITE ? [] : [many])];
  });
}

/** An object with a key that is in no `properties` or pattern, and with a value that does not fit. */
function negateAdditional(of: ShapesOf, schema: SchemaObject, keyword: string): readonly Shape[] {
  const opposite = of.turned(of.own.sub(schema.additionalProperties, schema, keyword));
  if (opposite === undefined) return [];
  const keys = of.own.entries(schema, "properties").map(([key]) => key);
  const patterns = of.own
    .entries(schema, "patternProperties")
    .map(([source]) => of.own.language(schema, "patternProperties", source));
  const language = of.strings.without([of.strings.oneOf(keys), ...patterns]);
  return [{ ...ANY_OBJECT, some: [{ language, both: opposite }] }];
}

function negatePatterns(of: ShapesOf, schema: SchemaObject, keyword: string): readonly Shape[] {
  return of.own.entries(schema, keyword).flatMap(([source, value]): Shape[] => {
    const opposite = of.turned(of.own.sub(value, schema, `${keyword}/${source}`));
    if (opposite === undefined) return [];
    const language = of.own.language(schema, keyword, source);
    return [{ ...ANY_OBJECT, some: [{ language, both: opposite }] }];
  });
}

function negateNames(of: ShapesOf, schema: SchemaObject, keyword: string): readonly Shape[] {
  const names = of.shapes(of.own.sub(schema.propertyNames, schema, keyword));
  const language = of.strings.without([of.strings.names(names)]);
  return [{ ...ANY_OBJECT, some: [{ language, both: [] }] }];
}

/** A format that is not enforced fits every text. */
function negateFormat(of: ShapesOf, schema: SchemaObject): readonly Shape[] {
  const format = of.own.format(schema);
  const shapes: Shape[] =
    format === undefined ? [] : [{ ...ANY_STRING, languages: [of.strings.not(format)] }];
  const range = of.own.range(schema);
  if (range === undefined || !of.own.types(schema).includes("integer")) return shapes;
  const below: NumberShape = { ...ANY_NUMBER, high: range[0], highExclusive: true };
  const above: NumberShape = { ...ANY_NUMBER, low: range[1], lowExclusive: true };
  return [...shapes, below, above];
}

function count(turn: (value: number, of: ShapesOf) => Shape | undefined): Negate {
  return (of, schema, keyword) => {
    const shape = turn(of.own.count(schema, keyword, 0), of);
    return shape ? [shape] : [];
  };
}

function bound(keyword: string, schema: SchemaObject, of: ShapesOf): number {
  const value = schema[keyword];
  if (typeof value !== "number") {
    throw of.own.wrong(schema, keyword, "the opposite of this keyword needs a number");
  }
  return value;
}

const NEGATE: Readonly<Record<string, Negate>> = byName({
  type: negateType,
  enum: negateValues,
  const: negateValues,
  properties: negateProperties,
  items: negateItems,
  prefixItems: (of, schema) => (schema.items === undefined ? negateItems(of, schema) : []),
  contains: negateContains,
  additionalProperties: negateAdditional,
  patternProperties: negatePatterns,
  propertyNames: negateNames,
  format: negateFormat,
  multipleOf: negateMultiple,
  required: (of, schema) => of.own.required(schema).map(withoutKey),
  dependentRequired: (of, schema, keyword) =>
    of.own
      .entries(schema, keyword)
      .flatMap(([key, needed]) =>
        of.own
          .strings(needed, schema, keyword)
          .flatMap((other) => of.join([{ ...ANY_OBJECT, required: [key] }], [withoutKey(other)])),
      ),
  minLength: count((value) => (value > 0 ? { ...ANY_STRING, high: value - 1 } : undefined)),
  maxLength: count((value) => ({ ...ANY_STRING, low: value + 1 })),
  minItems: count((value) => (value > 0 ? { ...ANY_ARRAY, high: value - 1 } : undefined)),
  maxItems: count((value) => ({ ...ANY_ARRAY, low: value + 1 })),
  minProperties: count((value) => (value > 0 ? { ...ANY_OBJECT, high: value - 1 } : undefined)),
  maxProperties: count((value) => ({ ...ANY_OBJECT, low: value + 1 })),
  pattern: (of, schema) => [{ ...ANY_STRING, languages: [of.strings.not(of.own.pattern(schema))] }],
  minimum: (of, schema) => [
    {
      ...ANY_NUMBER,
      high: bound("minimum", schema, of),
      highExclusive: schema.exclusiveMinimum !== true,
    },
  ],
  maximum: (of, schema) => [
    {
      ...ANY_NUMBER,
      low: bound("maximum", schema, of),
      lowExclusive: schema.exclusiveMaximum !== true,
    },
  ],
  exclusiveMinimum: (of, schema) =>
    typeof schema.exclusiveMinimum === "boolean"
      ? []
      : [{ ...ANY_NUMBER, high: bound("exclusiveMinimum", schema, of) }],
  exclusiveMaximum: (of, schema) =>
    typeof schema.exclusiveMaximum === "boolean"
      ? []
      : [{ ...ANY_NUMBER, low: bound("exclusiveMaximum", schema, of) }],
  allOf: (of, schema, keyword) =>
    of.add(of.list(schema, keyword).map((sub) => of.shapes(of.turned(sub)))),
  anyOf: (of, schema, keyword) =>
    of
      .list(schema, keyword)
      .map((sub) => of.shapes(of.turned(sub)))
      .reduce((a, b) => of.join(a, b), ANYTHING),
  oneOf: (of, schema, keyword) => {
    const branches = of.list(schema, keyword);
    const none = branches
      .map((sub) => of.shapes(of.turned(sub)))
      .reduce((a, b) => of.join(a, b), ANYTHING);
    const two = branches.flatMap((a, i) => branches.slice(0, i).map((b) => of.shapes(both(a, b))));
    return of.add([none, ...two]);
  },
  not: (of, schema, keyword) => of.shapes(of.own.sub(schema.not, schema, keyword)),
  $ref: (of, schema, keyword) => of.shapes(of.turned(of.target(schema, keyword))),
  $dynamicRef: (of, schema, keyword) => of.shapes(of.turned(of.target(schema, keyword))),
  $recursiveRef: (of, schema, keyword) => of.shapes(of.turned(of.target(schema, keyword))),
  if: (of, schema) => {
    const condition = of.own.sub(schema.if, schema, "if");
    const yes =
      schema.then === undefined ? never : of.turned(of.own.sub(schema.then, schema, "then"));
    const no =
      schema.else === undefined ? never : of.turned(of.own.sub(schema.else, schema, "else"));
    return of.add([of.shapes(both(condition, yes)), of.shapes(both(of.turned(condition), no))]);
  },
});
