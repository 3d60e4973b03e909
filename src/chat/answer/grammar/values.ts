// Values of arguments in forms that are not JSON, from the tool's JSON Schema. A schema without a grammar in such a form
// (combinations of schemas, strings by a pattern in the middle of tags) is free text up to the mark after the value.

import type { GrammarSource } from "../../../api/grammar-source.ts";
import { isObject, typesOf } from "../calls/call-reader.ts";
import {
  any,
  comma,
  either,
  type Item,
  literal,
  maybe,
  separated,
  sequence,
  space,
  without,
} from "./parts.ts";

export type Schema = Readonly<Record<string, unknown>>;

/** More keys than this are not put in an order. */
const MOST_KEYS = 64;
const DEEPEST = 6;

export interface Property {
  readonly key: string;
  readonly schema: Schema;
  readonly isRequired: boolean;
}

/** The arguments of a tool, one by one; undefined if its schema is not a plain object with properties. */
export function propertiesOf(
  parameters: unknown,
  root: unknown = parameters,
): Property[] | undefined {
  if (parameters === undefined) return undefined;
  if (!isObject(parameters)) return undefined;
  const { properties, required, additionalProperties } = parameters;
  if (
    ["anyOf", "oneOf", "allOf", "$ref", "if", "patternProperties"].some((key) =>
      Object.hasOwn(parameters, key),
    )
  ) {
    return undefined;
  }
  if (properties === undefined) return additionalProperties === false ? [] : undefined;
  if (!isObject(properties)) return undefined;
  const entries = Object.entries(properties);
  if (entries.length > MOST_KEYS) return undefined;
  const needed: readonly unknown[] = Array.isArray(required) ? required : [];
  return entries.map(([key, schema]) => ({
    key,
    schema: resolved(isObject(schema) ? schema : {}, root),
    isRequired: needed.includes(key),
  }));
}

/** The schema behind references within the tool's own schema. */
function resolved(schema: Schema, root: unknown): Schema {
  let found: unknown = schema;
  for (let steps = 0; steps < 8 && isObject(found) && typeof found.$ref === "string"; steps++) {
    const path = /^#\/(.*)$/.exec(found.$ref)?.[1];
    if (path === undefined) return found;
    let at: unknown = root;
    for (const key of path.split("/")) at = isObject(at) ? at[key] : undefined;
    if (at === undefined) return found;
    found = at;
  }
  return isObject(found) ? found : {};
}

/** A part of a tool's schema as a schema by itself: with the definitions that it may refer to. */
export function jsonValue(schema: Schema, root: unknown): GrammarSource {
  const definitions = isObject(root) ? { $defs: root.$defs, definitions: root.definitions } : {};
  const given = Object.entries(definitions).filter(([, value]) => value !== undefined);
  return { schema: { ...Object.fromEntries(given), ...schema } };
}

export const isString = (schema: Schema): boolean => {
  const types = typesOf(schema);
  return types.size === 1 && types.has("string");
};

/** A string as plain text up to `end`: one of its words, by its pattern or length, or any text. */
function plainString(schema: Schema, end: string): GrammarSource {
  const words = Array.isArray(schema.enum) ? schema.enum : "const" in schema ? [schema.const] : [];
  if (words.length > 0 && words.every((word) => typeof word === "string")) {
    return { choices: words as string[] };
  }
  const { pattern, minLength, maxLength } = schema;
  if (typeof pattern === "string" && /^\^[^^$]*\$$/.test(pattern)) return { regex: pattern };
  if (typeof minLength === "number" || typeof maxLength === "number") {
    const low = typeof minLength === "number" ? minLength : 0;
    const high = typeof maxLength === "number" ? String(maxLength) : "";
    return { regex: `[^<]{${low},${high}}` };
  }
  return without(end);
}

/** A value between tags: text for strings, JSON for the rest, either where the schema does not say. */
export function taggedValue(schema: Schema, root: unknown, end: string): GrammarSource {
  const types = typesOf(schema);
  if (isString(schema)) return plainString(schema, end);
  if (types.size === 0 || types.has("string")) return without(end);
  return jsonValue(schema, root);
}

/** A value as Python writes it. */
export function pythonValue(schema: Schema, root: unknown): GrammarSource {
  const types = typesOf(schema);
  const own: GrammarSource[] = [jsonValue(schema, root)];
  const isFree = !["enum", "const", "pattern", "format", "minLength", "maxLength"].some((key) =>
    Object.hasOwn(schema, key),
  );
  if (isString(schema) && isFree) own.push({ regex: "'(?:[^'\\\\\\n]|\\\\.)*'" });
  if (types.has("boolean")) own.push({ choices: ["True", "False"] });
  if (types.has("null")) own.push(literal("None"));
  const isPlain = !["properties", "items", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"].some(
    (key) => Object.hasOwn(schema, key),
  );
  if (isPlain && types.size === 0) own.push(freePython(2));
  if (isPlain && types.has("object")) own.push(pythonDictionary(freePython(1)));
  if (isPlain && types.has("array")) own.push(pythonList(freePython(1)));
  return either(own);
}

const pythonString: GrammarSource = {
  regex: "'(?:[^'\\\\\\n]|\\\\.)*'|\"(?:[^\"\\\\\\n]|\\\\.)*\"",
};

/** Any Python literal with at most `depth` levels of lists and dictionaries in it. */
function freePython(depth: number): GrammarSource {
  const leaves: GrammarSource[] = [
    pythonString,
    { regex: "-?(?:0|[1-9][0-9]{0,19})(?:\\.[0-9]{1,20})?" },
    { choices: ["True", "False", "None"] },
  ];
  if (depth === 0) return either(leaves);
  const inner = freePython(depth - 1);
  return either([...leaves, pythonList(inner), pythonDictionary(inner)]);
}

const listed = (open: string, item: GrammarSource, close: string): GrammarSource =>
  sequence(
    literal(open),
    space,
    maybe(sequence(item, any(sequence(comma, item)))),
    space,
    literal(close),
  );

const pythonList = (item: GrammarSource): GrammarSource => listed("[", item, "]");

const pythonDictionary = (value: GrammarSource): GrammarSource =>
  listed("{", sequence(pythonString, space, literal(":"), space, value), "}");

/** The notation of objects, lists and strings in a form that nests. */
export interface NestedWriting {
  object(items: readonly (Item & { readonly key: string })[]): GrammarSource;
  list(item: GrammarSource): GrammarSource;
  string(schema: Schema): GrammarSource;
  /** Any value at all. */
  free: GrammarSource;
}

function nestedValue(
  schema: Schema,
  root: unknown,
  writing: NestedWriting,
  depth = 0,
): GrammarSource {
  const own = resolved(schema, root);
  const types = typesOf(own);
  const [type] = types;
  if (types.size !== 1 || depth > DEEPEST || "anyOf" in own || "oneOf" in own || "allOf" in own) {
    return writing.free;
  }
  if (type === "string") return writing.string(own);
  if (type === "array") {
    const { items } = own;
    return isObject(items)
      ? writing.list(nestedValue(items, root, writing, depth + 1))
      : writing.free;
  }
  if (type === "object") {
    const properties = propertiesOf(own, root);
    return properties === undefined
      ? writing.free
      : writing.object(nestedItems(properties, root, writing, depth + 1));
  }
  return jsonValue(own, root);
}

export function nestedItems(
  properties: readonly Property[],
  root: unknown,
  writing: NestedWriting,
  depth = 0,
): (Item & { readonly key: string })[] {
  return properties.map(({ key, schema, isRequired }) => ({
    key,
    isRequired,
    part: nestedValue(schema, root, writing, depth),
  }));
}

/** Gemma 4's: `{key:<|"|>text<|"|>,n:1}`. */
export function bareKeys(quote: string, end: string): NestedWriting {
  const quoted = (inside: GrammarSource): GrammarSource =>
    sequence(literal(quote), inside, literal(quote));
  return {
    object: (items) =>
      sequence(
        literal("{"),
        space,
        separated(
          items.map(({ key, part, isRequired }) => ({
            isRequired,
            part: sequence(literal(`${key}:`), space, part),
          })),
          comma,
        ),
        space,
        literal("}"),
      ),
    list: (item) => listed("[", item, "]"),
    string: (schema) => quoted(plainString(schema, quote)),
    free: without(end),
  };
}

/** MiniMax M3's: a tag for each member, after a mark. */
export function nestedTags(mark: string): NestedWriting {
  const tagged = (key: string, inside: GrammarSource): GrammarSource =>
    sequence(literal(`${mark}<${key}>`), inside, literal(`${mark}</${key}>`));
  return {
    object: (items) =>
      sequence(
        ...items.map(({ key, part, isRequired }) =>
          isRequired ? tagged(key, part) : maybe(tagged(key, part)),
        ),
      ),
    list: (item) => any(tagged("item", item)),
    string: (schema) => plainString(schema, mark),
    free: without(`${mark}</invoke>`),
  };
}
