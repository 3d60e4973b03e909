// The keywords of one schema object that speak of one type each: bounds, lengths, items, properties. Keywords that join
// other schemas (allOf, anyOf, not, ...) are in normalize.ts.

import { GrammarError } from "../errors.ts";
import { INFINITE } from "../regex/expressions.ts";
import { type Documents, isObject, type SchemaObject } from "./documents.ts";
import { NUMBER_FORMATS, STRING_FORMATS } from "./formats.ts";
import {
  ANY_ARRAY,
  ANY_NUMBER,
  ANY_OBJECT,
  ANY_STRING,
  type ArrayShape,
  isEmptyNumber,
  type MaybeBoth,
  type NumberShape,
  type ObjectShape,
  type Shape,
  type StringShape,
} from "./shapes.ts";
import type { StringLanguages } from "./strings.ts";

const TYPES: readonly string[] = ["null", "boolean", "number", "string", "array", "object"];

export class OwnShapes {
  readonly #documents: Documents;
  readonly #strings: StringLanguages;
  readonly #notes: string[];

  constructor(documents: Documents, strings: StringLanguages, notes: string[]) {
    this.#documents = documents;
    this.#strings = strings;
    this.#notes = notes;
  }

  wrong(schema: SchemaObject, keyword: string, what: string): GrammarError {
    return new GrammarError(`json schema: ${this.#documents.path(schema)}/${keyword}: ${what}`);
  }

  /** The number of a subschema, as a list. */
  sub(value: unknown, schema: SchemaObject, keyword: string): MaybeBoth {
    if (value === true) return [];
    if (value === false) return undefined;
    if (!isObject(value)) throw this.wrong(schema, keyword, "expected a schema");
    return Object.keys(value).length === 0 ? [] : [this.#documents.id(value) + 1];
  }

  types(schema: SchemaObject): readonly string[] {
    const { type } = schema;
    if (type === undefined) return TYPES;
    const names = Array.isArray(type) ? (type as unknown[]) : [type];
    for (const name of names) {
      if (name === "any" || TYPES.includes(name as string) || name === "integer") continue;
      throw this.wrong(
        schema,
        "type",
        `${JSON.stringify(name)} is not one of ${TYPES.join(", ")}, integer`,
      );
    }
    if (names.includes("any")) return TYPES;
    return [...new Set(names as string[])].filter(
      (name) => name !== "integer" || !names.includes("number"),
    );
  }

  shape(type: string, schema: SchemaObject): Shape | undefined {
    switch (type) {
      case "null":
        return { type: "null" };
      case "boolean":
        return { type: "boolean" };
      case "number":
      case "integer":
        return this.#number(schema, type === "integer");
      case "string":
        return this.#string(schema);
      case "array":
        return this.array(schema);
      default:
        return this.object(schema);
    }
  }

  #bound(schema: SchemaObject, keyword: string): number | undefined {
    const value = schema[keyword];
    if (value === undefined) return undefined;
    if (typeof value !== "number") throw this.wrong(schema, keyword, "expected a number");
    return value;
  }

  /** A count: 2.0 is 2. */
  count(schema: SchemaObject, keyword: string, without: number): number {
    const value = this.#bound(schema, keyword) ?? without;
    if (value !== INFINITE && (!Number.isInteger(value) || value < 0)) {
      throw this.wrong(schema, keyword, `${value} is not a count`);
    }
    return value;
  }

  #number(schema: SchemaObject, integer: boolean): NumberShape | undefined {
    let { low, high, lowExclusive, highExclusive } = ANY_NUMBER;
    low = this.#bound(schema, "minimum") ?? low;
    high = this.#bound(schema, "maximum") ?? high;
    const { exclusiveMinimum, exclusiveMaximum } = schema;
    if (typeof exclusiveMinimum === "boolean") lowExclusive = exclusiveMinimum && low !== -INFINITE;
    else if (exclusiveMinimum !== undefined) {
      const bound = this.#bound(schema, "exclusiveMinimum")!;
      if (bound >= low) [low, lowExclusive] = [bound, true];
    }
    if (typeof exclusiveMaximum === "boolean")
      highExclusive = exclusiveMaximum && high !== INFINITE;
    else if (exclusiveMaximum !== undefined) {
      const bound = this.#bound(schema, "exclusiveMaximum")!;
      if (bound <= high) [high, highExclusive] = [bound, true];
    }
    const divisor = this.#bound(schema, "multipleOf");
    if (divisor !== undefined && divisor <= 0) {
      throw this.wrong(schema, "multipleOf", `${divisor} is not above 0`);
    }
    const range = integer ? this.range(schema) : undefined;
    if (range) {
      if (range[0] > low) [low, lowExclusive] = [range[0], false];
      if (range[1] < high) [high, highExclusive] = [range[1], false];
    }
    const shape: NumberShape = {
      type: "number",
      integer,
      fraction: false,
      low,
      lowExclusive,
      high,
      highExclusive,
      multiples: divisor === undefined ? [] : [divisor],
      nonMultiples: [],
    };
    return isEmptyNumber(shape) ? undefined : shape;
  }

  #string(schema: SchemaObject): StringShape | undefined {
    const low = this.count(schema, "minLength", 0);
    const high = this.count(schema, "maxLength", INFINITE);
    const languages: number[] = [];
    if (schema.pattern !== undefined) languages.push(this.pattern(schema));
    const format = this.format(schema);
    if (format !== undefined) languages.push(format);
    if (low > high) return undefined;
    return { ...ANY_STRING, low, high, languages };
  }

  pattern(schema: SchemaObject): number {
    if (typeof schema.pattern !== "string")
      throw this.wrong(schema, "pattern", "expected a string");
    return this.language(schema, "pattern", schema.pattern);
  }

  language(schema: SchemaObject, keyword: string, source: string): number {
    try {
      return this.#strings.pattern(source);
    } catch (error) {
      if (!(error instanceof GrammarError)) throw error;
      throw this.wrong(schema, keyword, error.message);
    }
  }

  /** The range of an integer's format. */
  range(schema: SchemaObject): readonly [number, number] | undefined {
    const { format } = schema;
    return typeof format === "string" ? NUMBER_FORMATS[format] : undefined;
  }

  /** The language of a string's format; one that is not enforced goes to the notes. */
  format(schema: SchemaObject): number | undefined {
    const { format } = schema;
    if (typeof format !== "string") return undefined;
    const known = STRING_FORMATS[format];
    if (known !== undefined) return this.#strings.whole(known);
    if (NUMBER_FORMATS[format] === undefined) {
      const note = `${this.#documents.path(schema)}/format: ${JSON.stringify(format)} is not enforced`;
      if (!this.#notes.includes(note)) this.#notes.push(note);
    }
    return undefined;
  }

  array(schema: SchemaObject): ArrayShape | undefined {
    const low = this.count(schema, "minItems", 0);
    const high = this.count(schema, "maxItems", INFINITE);
    if (low > high) return undefined;
    const contains = this.contains(schema);
    const { prefixItems, items, additionalItems, uniqueItems } = schema;
    const isList = Array.isArray(items);
    const first = (isList ? items : (prefixItems ?? [])) as unknown;
    if (!Array.isArray(first))
      throw this.wrong(schema, "prefixItems", "expected a list of schemas");
    const rest = isList ? additionalItems : items;
    const layer = {
      prefix: first.map((item) => this.sub(item, schema, isList ? "items" : "prefixItems")),
      rest: rest === undefined ? [] : this.sub(rest, schema, "items"),
      isWhole: rest !== undefined,
    };
    const isFree = layer.prefix.length === 0 && rest === undefined;
    return {
      ...ANY_ARRAY,
      layers: isFree ? [] : [layer],
      low,
      high,
      contains,
      unique: uniqueItems === true,
      path: this.#documents.path(schema),
    };
  }

  contains(schema: SchemaObject): ArrayShape["contains"] {
    if (schema.contains === undefined) return [];
    const low = this.count(schema, "minContains", 1);
    const high = this.count(schema, "maxContains", INFINITE);
    if (low === 0 && high === INFINITE) return [];
    return [{ both: this.sub(schema.contains, schema, "contains"), low, high }];
  }

  object(schema: SchemaObject): ObjectShape | undefined {
    const low = this.count(schema, "minProperties", 0);
    const high = this.count(schema, "maxProperties", INFINITE);
    if (low > high) return undefined;
    const properties = new Map<string, MaybeBoth>();
    for (const [key, value] of this.entries(schema, "properties")) {
      properties.set(key, this.sub(value, schema, `properties/${key}`));
    }
    const patterns = this.entries(schema, "patternProperties").map(([source, value]) => ({
      language: this.language(schema, "patternProperties", source),
      both: this.sub(value, schema, `patternProperties/${source}`),
    }));
    const { additionalProperties, propertyNames } = schema;
    const rest =
      additionalProperties === undefined
        ? []
        : this.sub(additionalProperties, schema, "additionalProperties");
    const isWhole = additionalProperties !== undefined;
    const isFree = properties.size === 0 && patterns.length === 0 && !isWhole;
    return {
      ...ANY_OBJECT,
      layers: isFree ? [] : [{ properties, patterns, rest, isWhole }],
      required: this.required(schema),
      low,
      high,
      names: propertyNames === undefined ? [] : [this.sub(propertyNames, schema, "propertyNames")],
      path: this.#documents.path(schema),
    };
  }

  required(schema: SchemaObject): readonly string[] {
    const { required } = schema;
    if (required === undefined) return [];
    return this.strings(required, schema, "required");
  }

  strings(value: unknown, schema: SchemaObject, keyword: string): string[] {
    if (!Array.isArray(value) || value.some((item) => typeof item !== "string")) {
      throw this.wrong(schema, keyword, "expected a list of strings");
    }
    return [...new Set(value as string[])];
  }

  entries(schema: SchemaObject, keyword: string): [string, unknown][] {
    const value = schema[keyword];
    if (value === undefined) return [];
    if (!isObject(value)) throw this.wrong(schema, keyword, "expected an object");
    return Object.entries(value);
  }
}
