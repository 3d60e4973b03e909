// Turns schemas into shapes: allOf joins, anyOf adds, oneOf adds the part that is in no other, not and if negate.
//
// `shapes` of a list of schemas are computed once. A schema that refers to itself without anything in between has none.

import { GrammarError, GrammarSizeError } from "../errors.ts";
import type { Meter } from "../meter.ts";
import { type Documents, isObject, type SchemaObject } from "./documents.ts";
import { ANNOTATIONS, UNSUPPORTED } from "./keywords.ts";
import { negativeShapes } from "./negate.ts";
import type { NumberLanguages } from "./numbers.ts";
import type { OwnShapes } from "./own-shapes.ts";
import {
  ANY_OBJECT,
  ANYTHING,
  type Both,
  both,
  equalValues,
  joinShapes,
  type MaybeBoth,
  type Shape,
  valueOfItem,
  valueOfKey,
  withoutKey,
} from "./shapes.ts";
import type { ShapesOf } from "./shapes-of.ts";
import type { StringLanguages } from "./strings.ts";
import { opposites, withoutUnevaluated } from "./unevaluated.ts";

const MOST_SHAPES = 3000;
/** Schemas that lead to each other, one by one. */
const DEEPEST = 500;
const MOST_JOINS = 400_000;
/** The most branches of anyOf beside unevaluatedProperties of which all sets are looked at. */
const MOST_SETS = 4;

export class Normalizer implements ShapesOf {
  readonly documents: Documents;
  readonly own: OwnShapes;
  readonly strings: StringLanguages;
  readonly #numbers: NumberLanguages;
  readonly #kept: Map<string, readonly Shape[]> = new Map();
  readonly #single: Map<number, readonly Shape[] | undefined> = new Map();
  #joins = 0;
  readonly #meter: Meter;
  #depth = 0;

  constructor(
    documents: Documents,
    own: OwnShapes,
    strings: StringLanguages,
    numbers: NumberLanguages,
    meter: Meter,
  ) {
    this.documents = documents;
    this.#meter = meter;
    this.own = own;
    this.strings = strings;
    this.#numbers = numbers;
  }

  /** The shapes of values that match all of these schemas. */
  shapes(all: MaybeBoth): readonly Shape[] {
    if (all === undefined) return [];
    if (all.length === 0) return ANYTHING;
    if (all.length === 1) return this.#shapesOf(all[0]!);
    const key = all.join();
    let shapes = this.#kept.get(key);
    if (shapes === undefined) {
      // Schemas that hold come first: they fix the order of properties.
      const ordered = [...all].sort((a, b) =>
        a > 0 === b > 0 ? Math.abs(a) - Math.abs(b) : b - a,
      );
      shapes = ordered.map((one) => this.#shapesOf(one)).reduce((a, b) => this.join(a, b));
      this.#kept.set(key, shapes);
    }
    return shapes;
  }

  #shapesOf(one: number): readonly Shape[] {
    if (this.#single.has(one)) {
      const known = this.#single.get(one);
      if (known) return known;
      const schema = this.documents.schema(Math.abs(one) - 1);
      const keyword = ["$dynamicRef", "$recursiveRef"].find((name) => Object.hasOwn(schema, name));
      throw this.own.wrong(schema, keyword ?? "$ref", "the schema refers to itself without end");
    }
    this.#meter.spend(1);
    this.#single.set(one, undefined);
    this.#depth++;
    try {
      if (this.#depth > DEEPEST) throw this.#tooDeep(one);
      this.#meter.at = () => this.documents.path(this.documents.schema(Math.abs(one) - 1));
      const schema = this.documents.schema(Math.abs(one) - 1);
      const shapes = one > 0 ? this.#positive(schema) : opposites(negativeShapes(this, schema));
      this.#single.set(one, shapes);
      return shapes;
    } catch (error) {
      this.#single.delete(one);
      throw error;
    } finally {
      this.#depth--;
    }
  }

  #tooDeep(one: number): GrammarSizeError {
    const path = this.documents.path(this.documents.schema(Math.abs(one) - 1));
    return new GrammarSizeError(
      `json schema: ${path}: more than ${DEEPEST} schemas that refer to each other. Use fewer levels`,
    );
  }

  join(a: readonly Shape[], b: readonly Shape[]): readonly Shape[] {
    if (a === ANYTHING) return b;
    if (b === ANYTHING) return a;
    const result: Shape[] = [];
    for (const x of a) {
      for (const y of b) {
        if (++this.#joins > MOST_JOINS) throw tooMany();
        this.#meter.spend(1);
        const joined = this.#joinTwo(x, y);
        if (joined && !this.isEmpty(joined, 0)) result.push(joined);
        if (result.length > MOST_SHAPES) throw tooMany();
      }
    }
    return result;
  }

  #joinTwo(a: Shape, b: Shape): Shape | undefined {
    if (a.type === "const") return this.check(a.value, b) ? a : undefined;
    if (b.type === "const") return this.check(b.value, a) ? b : undefined;
    return joinShapes(a, b);
  }

  /** Both lists. */
  add(lists: readonly (readonly Shape[])[]): readonly Shape[] {
    if (lists.includes(ANYTHING)) return ANYTHING;
    const all = lists.flat();
    if (all.length > MOST_SHAPES) throw tooMany();
    return [...new Set(all)];
  }

  #positive(schema: SchemaObject): readonly Shape[] {
    const { own } = this;
    if (typeof schema.$ref === "string" && this.documents.isLegacy) {
      return this.shapes(this.target(schema, "$ref"));
    }
    const parts: (readonly Shape[])[] = [];
    let isOwnDone = false;
    const addOwn = (): void => {
      if (!isOwnDone) parts.push(this.#own(schema));
      isOwnDone = true;
    };
    for (const keyword of Object.keys(schema)) {
      if (ANNOTATIONS.has(keyword)) continue;
      if (UNSUPPORTED.has(keyword)) {
        throw own.wrong(schema, keyword, "this keyword is not supported");
      }
      const part = this.#applicator(keyword, schema);
      if (part) parts.push(part);
      else addOwn();
    }
    const shapes = parts.reduce((a, b) => this.join(a, b), ANYTHING);
    const { unevaluatedProperties, unevaluatedItems } = schema;
    if (unevaluatedProperties === undefined && unevaluatedItems === undefined) return shapes;
    return shapes
      .map((shape) => withoutUnevaluated(shape, schema, own))
      .filter((shape) => !this.isEmpty(shape, 0));
  }

  #own(schema: SchemaObject): readonly Shape[] {
    const shapes = this.own.types(schema).map((type) => this.own.shape(type, schema));
    return shapes.filter((shape) => shape !== undefined && !this.isEmpty(shape, 0)) as Shape[];
  }

  /** The shapes of a keyword that joins other schemas; undefined for any other. */
  #applicator(keyword: string, schema: SchemaObject): readonly Shape[] | undefined {
    switch (keyword) {
      case "$ref":
      case "$dynamicRef":
      case "$recursiveRef":
        return this.shapes(this.target(schema, keyword));
      case "unevaluatedProperties":
      case "unevaluatedItems":
        return ANYTHING; // after all others
      case "enum":
        if (!Array.isArray(schema.enum)) throw this.own.wrong(schema, keyword, "expected a list");
        this.#meter.spend(schema.enum.length / 4);
        return (schema.enum as unknown[]).map((value) => ({ type: "const", value }) as const);
      case "const":
        return [{ type: "const", value: schema.const }];
      case "allOf":
        return this.list(schema, keyword)
          .map((sub) => this.shapes(sub))
          .reduce((a, b) => this.join(a, b), ANYTHING);
      case "anyOf":
        return this.#anyOf(schema);
      case "oneOf":
        return this.#oneOf(schema);
      case "not":
        return this.shapes(this.turned(this.own.sub(schema.not, schema, keyword)));
      case "if":
        return this.#condition(schema);
      case "then":
      case "else":
        return ANYTHING;
      case "dependentRequired":
      case "dependentSchemas":
      case "dependencies":
        return this.#dependencies(schema, keyword);
      default:
        return undefined;
    }
  }

  list(schema: SchemaObject, keyword: string): MaybeBoth[] {
    const value = schema[keyword];
    if (!Array.isArray(value) || value.length === 0) {
      throw this.own.wrong(schema, keyword, "expected a list of schemas");
    }
    return value.map((item) => this.own.sub(item, schema, keyword));
  }

  /** The opposites of schemas that all hold: one of them does not. */
  turnedAll(all: MaybeBoth): Both[] {
    if (all === undefined) return [[]];
    return all.map((one) => [-one]);
  }

  /** The opposite of one schema. */
  turned(sub: MaybeBoth): MaybeBoth {
    if (sub === undefined) return [];
    if (sub.length === 0) return undefined;
    return [-sub[0]!];
  }

  /** The target of a reference. A dynamic one means the same on every path only if there is no other candidate. */
  target(schema: SchemaObject, keyword: string): MaybeBoth {
    const ref = schema[keyword];
    if (typeof ref !== "string") throw this.own.wrong(schema, keyword, "expected a string");
    const target = this.documents.resolve(ref, schema);
    if (target === undefined) {
      throw this.own.wrong(
        schema,
        keyword,
        `${JSON.stringify(ref)} is not in this schema, and nothing is fetched`,
      );
    }
    if (keyword !== "$ref" && this.documents.candidates(ref) > 1) {
      throw this.own.wrong(
        schema,
        keyword,
        `${JSON.stringify(ref)} is the anchor of several schemas, which is not supported`,
      );
    }
    return this.own.sub(target, schema, keyword);
  }

  /** Properties that several branches evaluate together count, so each set of branches is a branch of its own. */
  #anyOf(schema: SchemaObject): readonly Shape[] {
    const branches = this.list(schema, "anyOf");
    const isPlain =
      schema.unevaluatedProperties === undefined && schema.unevaluatedItems === undefined;
    if (isPlain || branches.length > MOST_SETS) {
      return this.add(branches.map((sub) => this.shapes(sub)));
    }
    let sets: MaybeBoth[] = [];
    for (const branch of branches)
      sets = [...sets, branch, ...sets.map((set) => both(set, branch))];
    return this.add(sets.map((set) => this.shapes(set)));
  }

  /** Branches that overlap exclude each other; most do not. */
  #oneOf(schema: SchemaObject): readonly Shape[] {
    const branches = this.list(schema, "oneOf");
    const alone: MaybeBoth[] = [...branches];
    for (let i = 0; i < branches.length; i++) {
      this.#meter.spend(i / 4);
      for (let j = 0; j < i; j++) {
        if (this.#areApart(branches[i], branches[j])) continue;
        alone[i] = both(alone[i], this.turned(branches[j]));
        alone[j] = both(alone[j], this.turned(branches[i]));
      }
    }
    try {
      return this.add(alone.map((branch) => this.shapes(branch)));
    } catch (error) {
      if (!(error instanceof GrammarError) || error instanceof GrammarSizeError) throw error;
      throw this.own.wrong(
        schema,
        "oneOf",
        `two branches may hold at once, and excluding it is not supported (${error.message}). Use anyOf, or give the branches a property with different constants`,
      );
    }
  }

  #areApart(a: MaybeBoth, b: MaybeBoth): boolean {
    const joined = both(a, b);
    if (joined === undefined) return true;
    if (joined.length === 1) return false; // the same schema twice
    return this.shapes(joined).every((shape) => this.isEmpty(shape, 3));
  }

  #condition(schema: SchemaObject): readonly Shape[] {
    const { unevaluatedProperties: keys, unevaluatedItems: items } = schema;
    const isAlone = schema.then === undefined && schema.else === undefined;
    if (isAlone && keys === undefined && items === undefined) return ANYTHING;
    const condition = this.own.sub(schema.if, schema, "if");
    const yes = schema.then === undefined ? [] : this.own.sub(schema.then, schema, "then");
    const no = schema.else === undefined ? [] : this.own.sub(schema.else, schema, "else");
    return this.add([
      this.shapes(both(condition, yes)),
      this.shapes(both(this.turned(condition), no)),
    ]);
  }

  #dependencies(schema: SchemaObject, keyword: string): readonly Shape[] {
    let shapes: readonly Shape[] = ANYTHING;
    for (const [key, value] of this.own.entries(schema, keyword)) {
      const present: Shape = { ...ANY_OBJECT, required: [key] };
      const needed: readonly Shape[] = Array.isArray(value)
        ? [{ ...ANY_OBJECT, required: [key, ...this.own.strings(value, schema, keyword)] }]
        : this.join([present], this.shapes(this.own.sub(value, schema, keyword)));
      const others = ANYTHING.filter(({ type }) => type !== "object");
      shapes = this.join(shapes, [...others, withoutKey(key), ...needed]);
    }
    return shapes;
  }

  // ---- values

  check(value: unknown, shape: Shape): boolean {
    switch (shape.type) {
      case "null":
        return value === null;
      case "boolean":
        return typeof value === "boolean";
      case "const":
        return equalValues(value, shape.value);
      case "number":
        return typeof value === "number" && this.#numbers.matches(shape, value);
      case "string": {
        if (typeof value !== "string") return false;
        const length = [...value].length;
        return (
          length >= shape.low &&
          length <= shape.high &&
          shape.languages.every((language) => this.strings.matches(language, value))
        );
      }
      case "array":
        return Array.isArray(value) && this.#checkArray(value, shape);
      case "object":
        return isObject(value) && this.#checkObject(value, shape);
      default:
        return shape satisfies never;
    }
  }

  #checkAll(value: unknown, all: MaybeBoth): boolean {
    return this.shapes(all).some((shape) => this.check(value, shape));
  }

  #checkArray(value: readonly unknown[], shape: Shape & { type: "array" }): boolean {
    if (value.length < shape.low || value.length > shape.high) return false;
    this.#meter.spend(shape.unique ? value.length ** 2 / 16 : value.length);
    if (!value.every((item, i) => this.#checkAll(item, valueOfItem(shape.layers, i)))) return false;
    const isUnique = value.every((a, i) => value.every((b, j) => j <= i || !equalValues(a, b)));
    if (shape.unique && !isUnique) return false;
    return shape.contains.every((rule) => {
      const count = value.filter((item) => this.#checkAll(item, rule.both)).length;
      return count >= rule.low && count <= rule.high;
    });
  }

  #checkObject(value: SchemaObject, shape: Shape & { type: "object" }): boolean {
    const keys = Object.keys(value);
    if (keys.length < shape.low || keys.length > shape.high) return false;
    if (!shape.required.every((key) => Object.hasOwn(value, key))) return false;
    const hasSome = shape.some.every((rule) =>
      keys.some(
        (key) => this.strings.matches(rule.language, key) && this.#checkAll(value[key], rule.both),
      ),
    );
    if (!hasSome) return false;
    return keys.every(
      (key) =>
        this.#checkAll(value[key], this.valueOf(shape, key)) &&
        shape.names.every((name) => this.#checkAll(key, name)),
    );
  }

  valueOf(shape: Shape & { type: "object" }, key: string): MaybeBoth {
    this.#meter.spend(shape.layers.length / 4);
    return shape.layers
      .map((layer) =>
        valueOfKey(layer, key, (language, name) => this.strings.matches(language, name)),
      )
      .reduce<MaybeBoth>(both, []);
  }

  /** Whether a shape plainly has no value; `depth`: how deep to look into its requirements. */
  isEmpty(shape: Shape, depth: number): boolean {
    const isNever = (all: MaybeBoth): boolean => {
      if (all === undefined) return true;
      if (depth === 0 || all.length < 2) return false;
      try {
        return this.shapes(all).every((inner) => this.isEmpty(inner, depth - 1));
      } catch (error) {
        // A schema that is still being read, or has no opposite: not plain, at any rate.
        if (error instanceof GrammarError && !(error instanceof GrammarSizeError)) return false;
        throw error;
      }
    };
    switch (shape.type) {
      case "string":
        return shape.languages.length > 1 && depth > 0 && !this.strings.isAlive(shape);
      case "array":
        if (shape.low === 0) return false;
        return shape.layers.length > 0 && isNever(valueOfItem(shape.layers, 0));
      case "object":
        return shape.required.some((key) => isNever(this.valueOf(shape, key)));
      default:
        return false;
    }
  }
}

function tooMany(): GrammarSizeError {
  return new GrammarSizeError(
    `json schema: anyOf, oneOf and conditions give more than ${MOST_SHAPES} combinations. Use fewer of them`,
  );
}
