// Checks a value against a JSON Schema, for arguments of tools: what is wrong, at which path. The schema may come from a stranger (an
// MCP server), so the work is bounded, and `pattern` and `format` are left to the tool: a regular expression can take for ever.

import { byName } from "../../base/by-name.ts";
import { show } from "../../base/show.ts";

type Schema = Readonly<Record<string, unknown>>;

/** More than any schema of a tool takes. */
const mostSteps = 100_000;
const deepest = 100;
/** Problems beyond these are not listed. */
const mostProblems = 8;

/** One sentence for each problem; none: the value follows the schema. */
export function schemaProblems(schema: unknown, value: unknown): string[] {
  const check = new SchemaCheck(schema);
  check.run(schema, value, "", 0);
  return check.problems;
}

class SchemaCheck {
  problems: string[] = [];
  readonly #root: unknown;
  #steps = 0;

  constructor(root: unknown) {
    this.#root = root;
  }

  run(schema: unknown, value: unknown, path: string, depth: number): void {
    if (schema === true || this.problems.length >= mostProblems) return;
    if (schema === false) this.#say(path, "nothing is allowed here");
    if (!isObject(schema)) return;
    if (++this.#steps > mostSteps || depth > deepest) {
      this.#say(path, "the schema is too large or too deep to check this");
      return;
    }
    if (typeof schema.$ref === "string") {
      const target = this.#target(schema.$ref);
      if (target === undefined) this.#say(path, `the schema has no ${show(schema.$ref)}`);
      else this.run(target, value, path, depth + 1);
    }
    this.#own(schema, value, path);
    if (isObject(value)) this.#object(schema, value, path, depth);
    if (Array.isArray(value)) this.#array(schema, value, path, depth);
    this.#combined(schema, value, path, depth);
  }

  /** Keywords that look at the value as a whole. */
  #own(schema: Schema, value: unknown, path: string): void {
    const { type } = schema;
    const types = typeof type === "string" ? [type] : Array.isArray(type) ? type : undefined;
    if (types !== undefined && !types.some((one) => isOfType(value, one))) {
      this.#say(path, `got ${kindOf(value)}, expected ${types.join(" or ")}`);
      return;
    }
    if (Array.isArray(schema.enum) && !schema.enum.some((one) => isSame(one, value))) {
      const listed = schema.enum
        .slice(0, 20)
        .map((one) => JSON.stringify(one))
        .join(", ");
      this.#say(path, `got ${show(value)}, expected one of ${listed}`);
    }
    if ("const" in schema && !isSame(schema.const, value)) {
      this.#say(path, `got ${show(value)}, expected ${JSON.stringify(schema.const)}`);
    }
    for (const [keyword, { of, fits, says }] of Object.entries(bounds)) {
      const bound = schema[keyword];
      const size = of(value);
      if (typeof bound !== "number" || size === undefined || fits(size, bound)) continue;
      this.#say(path, `got ${size}, expected ${says} ${bound}`);
    }
  }

  #object(schema: Schema, value: Schema, path: string, depth: number): void {
    for (const name of list(schema.required)) {
      if (typeof name === "string" && !Object.hasOwn(value, name)) {
        this.#say(path, `${JSON.stringify(name)} is missing`);
      }
    }
    const properties = isObject(schema.properties) ? schema.properties : {};
    const others = schema.additionalProperties;
    const isOpen = isObject(schema.patternProperties);
    for (const [name, inner] of Object.entries(value)) {
      const where = path === "" ? name : `${path}.${name}`;
      if (Object.hasOwn(properties, name)) this.run(properties[name], inner, where, depth + 1);
      else if (others === false && !isOpen) {
        const known = Object.keys(properties).slice(0, 20).join(", ") || "none";
        this.#say(path, `${JSON.stringify(name)} is unknown. Known: ${known}`);
      } else if (isObject(others)) this.run(others, inner, where, depth + 1);
    }
  }

  #array(schema: Schema, value: readonly unknown[], path: string, depth: number): void {
    const first = list(schema.prefixItems);
    for (const [at, inner] of value.entries()) {
      const own = at < first.length ? first[at] : schema.items;
      if (own !== undefined) this.run(own, inner, `${path}[${at}]`, depth + 1);
    }
  }

  #combined(schema: Schema, value: unknown, path: string, depth: number): void {
    for (const one of list(schema.allOf)) this.run(one, value, path, depth + 1);
    for (const keyword of ["anyOf", "oneOf"]) {
      const choices = list(schema[keyword]);
      if (choices.length === 0) continue;
      const tries = choices.map((one) => this.#tried(one, value, path, depth));
      const fitting = tries.filter((problems) => problems.length === 0).length;
      if (fitting === 0) this.#say(path, `fits none of the alternatives: ${tries[0]![0]}`);
      else if (keyword === "oneOf" && fitting > 1) {
        this.#say(path, `fits ${fitting} of the alternatives, expected one`);
      }
    }
    if (schema.not !== undefined && this.#tried(schema.not, value, path, depth).length === 0) {
      this.#say(path, "is what the schema excludes");
    }
  }

  #tried(schema: unknown, value: unknown, path: string, depth: number): string[] {
    const before = this.problems;
    this.problems = [];
    this.run(schema, value, path, depth + 1);
    const found = this.problems;
    this.problems = before;
    return found;
  }

  /** "#/$defs/place": a part of the same schema. */
  #target(reference: string): unknown {
    if (reference === "#") return this.#root;
    if (!reference.startsWith("#/")) return undefined;
    let at: unknown = this.#root;
    for (const part of reference.slice(2).split("/")) {
      const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
      if (!(isObject(at) || Array.isArray(at)) || !Object.hasOwn(at, key)) return undefined;
      at = (at as Record<string, unknown>)[key];
    }
    return at;
  }

  #say(path: string, problem: string): void {
    this.problems.push(path === "" ? problem : `${path}: ${problem}`);
  }
}

interface Bound {
  readonly of: (value: unknown) => number | undefined;
  readonly fits: (size: number, bound: number) => boolean;
  readonly says: string;
}

const numberOf = (value: unknown): number | undefined =>
  typeof value === "number" ? value : undefined;
const letters = (value: unknown): number | undefined =>
  typeof value === "string" ? [...value].length : undefined;
const items = (value: unknown): number | undefined =>
  Array.isArray(value) ? value.length : undefined;
const keys = (value: unknown): number | undefined =>
  isObject(value) ? Object.keys(value).length : undefined;
const atLeast = (size: number, bound: number): boolean => size >= bound;
const atMost = (size: number, bound: number): boolean => size <= bound;

const bounds: Readonly<Record<string, Bound>> = byName({
  minimum: { of: numberOf, fits: atLeast, says: "at least" },
  maximum: { of: numberOf, fits: atMost, says: "at most" },
  exclusiveMinimum: { of: numberOf, fits: (size, bound) => size > bound, says: "more than" },
  exclusiveMaximum: { of: numberOf, fits: (size, bound) => size < bound, says: "less than" },
  multipleOf: {
    of: numberOf,
    fits: (size, bound) => bound <= 0 || Number.isInteger(Number((size / bound).toPrecision(12))),
    says: "a multiple of",
  },
  minLength: { of: letters, fits: atLeast, says: "a length of at least" },
  maxLength: { of: letters, fits: atMost, says: "a length of at most" },
  minItems: { of: items, fits: atLeast, says: "a length of at least" },
  maxItems: { of: items, fits: atMost, says: "a length of at most" },
  minProperties: { of: keys, fits: atLeast, says: "a number of properties of at least" },
  maxProperties: { of: keys, fits: atMost, says: "a number of properties of at most" },
});

function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

function isOfType(value: unknown, type: unknown): boolean {
  const kind = kindOf(value);
  return type === kind || (type === "number" && kind === "integer");
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value;
}

/** Equal as JSON; the order of keys does not count. */
function isSame(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === b.length && a.every((one, at) => isSame(one, b[at]));
  }
  if (!isObject(a) || !isObject(b)) return false;
  const names = Object.keys(a);
  return (
    names.length === Object.keys(b).length &&
    names.every((name) => Object.hasOwn(b, name) && isSame(a[name], b[name]))
  );
}
