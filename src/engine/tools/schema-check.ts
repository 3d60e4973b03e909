// Checks a value against a JSON Schema, for arguments of tools, and reports errors with their paths. Unlike a grammar it takes
// properties in any order, and names the expected value.
//
// The schema may come from a stranger (an MCP server), so the work is bounded: patterns run on the grammar's own expressions, never on
// the platform's, and checks that cannot be decided within bounds are left to the tool, as `format` and `unevaluated...` are.

import { byName } from "../../base/by-name.ts";
import { show } from "../../base/show.ts";
import { Documents } from "../../grammar/json-schema/documents.ts";
import type { PatternFinder } from "../../grammar/regex/pattern-finder.ts";

type Schema = Readonly<Record<string, unknown>>;

/** More than any schema of a tool takes. */
const mostSteps = 100_000;
const deepest = 100;
/** Problems beyond these are not listed, and characters of each. */
const mostProblems = 8;
const longestProblem = 300;

/** One sentence for each problem; none: the value follows the schema. */
export async function schemaProblems(schema: unknown, value: unknown): Promise<string[]> {
  // The code of regular expressions is loaded when it is needed.
  const { PatternFinder } = await import("../../grammar/regex/pattern-finder.ts");
  const check = new SchemaCheck(schema, new PatternFinder());
  check.run(schema, value, "", 0);
  return check.hasGivenUp ? [tooLarge] : check.problems;
}

const tooLarge = "the schema is too large or too deep to check this";

class SchemaCheck {
  problems: string[] = [];
  readonly #documents: Documents;
  readonly #patterns: PatternFinder;
  #steps = 0;

  constructor(root: unknown, patterns: PatternFinder) {
    this.#documents = new Documents(root);
    this.#patterns = patterns;
  }

  get hasGivenUp(): boolean {
    return this.#steps > mostSteps;
  }

  run(schema: unknown, value: unknown, path: string, depth: number): void {
    if (schema === true || this.problems.length >= mostProblems) return;
    if (schema === false) this.#say(path, "nothing is allowed here");
    if (!isObject(schema)) return;
    if (++this.#steps > mostSteps || depth > deepest) {
      this.#steps = mostSteps + 1;
      this.problems.push(tooLarge); // the caller of this part sees that it failed
      return;
    }
    for (const keyword of ["$ref", "$dynamicRef", "$recursiveRef"]) {
      this.#referred(schema, keyword, value, path, depth);
    }
    if (this.#documents.isLegacy && typeof schema.$ref === "string") return;
    this.#own(schema, value, path);
    if (isObject(value)) this.#object(schema, value, path, depth);
    if (Array.isArray(value)) this.#array(schema, value, path, depth);
    this.#combined(schema, value, path, depth);
  }

  #referred(schema: Schema, keyword: string, value: unknown, path: string, depth: number): void {
    const reference = schema[keyword];
    if (typeof reference !== "string") return;
    // Which of several schemas a dynamic reference means depends on the way to it: that is left to the tool.
    if (keyword !== "$ref" && this.#documents.candidates(reference) > 1) return;
    const target = this.#documents.resolve(reference, schema);
    if (target === undefined) this.#say(path, `the schema has no ${show(reference)}`);
    else this.run(target, value, path, depth + 1);
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
    if (Object.hasOwn(schema, "const") && !isSame(schema.const, value)) {
      this.#say(path, `got ${show(value)}, expected ${JSON.stringify(schema.const)}`);
    }
    for (const [keyword, { of, fits, says }] of Object.entries(bounds)) {
      const bound = schema[keyword];
      const size = of(value);
      if (typeof bound !== "number" || size === undefined || fits(size, bound)) continue;
      this.#say(path, `got ${size}, expected ${says} ${bound}`);
    }
    const { pattern } = schema;
    if (typeof value === "string" && typeof pattern === "string" && !this.#fits(pattern, value)) {
      this.#say(path, `got ${show(value)}, expected a text that fits the pattern ${show(pattern)}`);
    }
  }

  /** Whether a text fits, or cannot be decided about. */
  #fits(pattern: string, text: string): boolean {
    this.#steps++;
    return this.#patterns.finds(pattern, text) !== false;
  }

  #object(schema: Schema, value: Schema, path: string, depth: number): void {
    const missing = (name: unknown, why: string): void => {
      if (typeof name !== "string" || Object.hasOwn(value, name)) return;
      this.#say(path, `${JSON.stringify(name)} is missing${why}`);
    };
    for (const name of list(schema.required)) missing(name, "");
    const properties = isObject(schema.properties) ? schema.properties : {};
    const patterns = isObject(schema.patternProperties)
      ? Object.entries(schema.patternProperties)
      : [];
    const others = schema.additionalProperties;
    for (const [name, inner] of Object.entries(value)) {
      const where = path === "" ? name : `${path}.${name}`;
      let isKnown = Object.hasOwn(properties, name);
      if (isKnown) this.run(properties[name], inner, where, depth + 1);
      for (const [pattern, own] of patterns) {
        if (!this.#fits(pattern, name)) continue;
        isKnown = true;
        this.run(own, inner, where, depth + 1);
      }
      if (schema.propertyNames !== undefined) {
        this.run(schema.propertyNames, name, `${where} (its name)`, depth + 1);
      }
      if (isKnown || others === undefined) continue;
      if (others === false) {
        const known = Object.keys(properties).slice(0, 20).join(", ") || "none";
        this.#say(path, `${JSON.stringify(name)} is unknown. Known: ${known}`);
      } else this.run(others, inner, where, depth + 1);
    }
    for (const keyword of ["dependentRequired", "dependentSchemas", "dependencies"]) {
      const dependents = schema[keyword];
      for (const [name, needs] of Object.entries(isObject(dependents) ? dependents : {})) {
        if (!Object.hasOwn(value, name)) continue;
        if (Array.isArray(needs)) {
          for (const other of needs) missing(other, `, which ${JSON.stringify(name)} needs`);
        } else this.run(needs, value, path, depth + 1);
      }
    }
  }

  #array(schema: Schema, value: readonly unknown[], path: string, depth: number): void {
    // Before draft 2020-12, a list in items has the role of today's prefixItems, and additionalItems that of items.
    const isOld = Array.isArray(schema.items);
    const first = list(isOld ? schema.items : schema.prefixItems);
    const others = isOld ? schema.additionalItems : schema.items;
    for (const [at, inner] of value.entries()) {
      const own = at < first.length ? first[at] : others;
      if (own !== undefined) this.run(own, inner, `${path}[${at}]`, depth + 1);
    }
    if (schema.uniqueItems === true && new Set(value.map(canonical)).size < value.length) {
      this.#say(path, "has an item twice, expected different ones");
    }
    if (schema.contains === undefined) return;
    const fitting = value.filter(
      (inner) => this.#tried(schema.contains, inner, path, depth).length === 0,
    ).length;
    const { minContains: low = 1, maxContains: high = Number.POSITIVE_INFINITY } = schema;
    if (fitting < Number(low)) {
      this.#say(path, `${fitting} of its items are as it must contain, expected at least ${low}`);
    } else if (fitting > Number(high)) {
      this.#say(path, `${fitting} of its items are as it may contain, expected at most ${high}`);
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
    if (schema.if === undefined) return;
    const isThen = this.#tried(schema.if, value, path, depth).length === 0;
    const next = isThen ? schema.then : schema.else;
    if (next !== undefined) this.run(next, value, path, depth + 1);
  }

  #tried(schema: unknown, value: unknown, path: string, depth: number): string[] {
    const before = this.problems;
    this.problems = [];
    this.run(schema, value, path, depth + 1);
    const found = this.problems;
    this.problems = before;
    return found;
  }

  #say(path: string, problem: string): void {
    const text = path === "" ? problem : `${path}: ${problem}`;
    this.problems.push(text.length > longestProblem ? `${text.slice(0, longestProblem)}...` : text);
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
const isSame = (a: unknown, b: unknown): boolean => a === b || canonical(a) === canonical(b);

/** Equal texts for values that are equal as JSON. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const names = Object.keys(value).sort((a, b) => (a < b ? -1 : 1));
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join()}}`;
}
