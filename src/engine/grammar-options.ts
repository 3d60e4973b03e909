// The options of a generation that say which texts are allowed: `grammar`, `schema`, `regex` and `choices` are spellings of one
// GrammarSource. It is made on the caller's thread, since a schema object of Zod cannot be sent to another.

import type { GrammarOptions, GrammarTrigger } from "../api/api.ts";
import type { GrammarSource } from "../api/grammar-source.ts";
import { messageOf, UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import { type GrammarText, textOfSource } from "../grammar/source.ts";

/** The options that name a grammar; at most one of them may be given. */
const spellings: readonly Spelling[] = ["grammar", "schema", "regex", "choices"];

type Spelling = keyof GrammarOptions;

/** The grammar of a generation; undefined: any text. */
export function grammarSource(options: GrammarOptions): GrammarSource | undefined {
  const given = spellings.filter((name) => options[name] !== undefined);
  if (given.length > 1) {
    throw new UsageError(
      `${given.join(" and ")}: got ${given.length} grammars, expected one. Leave out all but one of them`,
    );
  }
  const [name] = given;
  return name && readers[name](options[name]);
}

/** The text of a source that other threads get. */
export function grammarText(source: GrammarSource): GrammarText {
  let text: GrammarText;
  try {
    text = textOfSource(source);
  } catch (cause) {
    throw new UsageError(`grammar: it cannot be written as JSON: ${messageOf(cause)}`, { cause });
  }
  checkPlain(source);
  return text;
}

/** JSON.stringify leaves out values that it cannot write, or writes something else. */
function checkPlain(source: GrammarSource): void {
  const open: object[] = [source];
  for (let holder = open.pop(); holder !== undefined; holder = open.pop()) {
    // Hundreds of thousands of values may be in one list: no object is made for each.
    for (const key of Array.isArray(holder) ? holder.keys() : Object.keys(holder)) {
      const value = (holder as Record<PropertyKey, unknown>)[key];
      if (typeof value === "object" && value !== null) open.push(value);
      else if (typeof value === "function" || typeof value === "symbol") {
        throw new UsageError(
          `grammar: "${key}" is a ${typeof value}, expected only data that JSON has`,
        );
      }
    }
  }
}

const readers: Readonly<Record<Spelling, (value: unknown) => GrammarSource>> = {
  grammar: (value) => {
    if (typeof value === "string") return { gbnf: value };
    if (isObject(value) && kinds.some((kind) => Object.hasOwn(value, kind))) {
      return value as unknown as GrammarSource;
    }
    throw wrong(
      "grammar",
      value,
      "text in GBNF, or an object with one of gbnf, schema, regex, choices and tags",
    );
  },
  schema: (value) => ({ schema: jsonSchema(value) }),
  regex: (value) => {
    if (typeof value === "string") return { regex: value };
    if (value instanceof RegExp) return { regex: patternOf(value) };
    throw wrong("regex", value, "a regular expression, or its text");
  },
  choices: (value) => {
    const isList = Array.isArray(value) && value.every((one) => typeof one === "string");
    if (!isList || value.length === 0) throw wrong("choices", value, "a list of one or more texts");
    return { choices: [...value] as string[] };
  },
};

const kinds = [
  ...["gbnf", "schema", "regex", "choices", "tags", "reasoning"],
  ...["sequence", "either", "repeat", "literal", "without"],
];

/** A JSON schema as it is, or that of an object which can describe itself as one, such as a schema of Zod. */
function jsonSchema(value: unknown): unknown {
  if (typeof value === "boolean") return value;
  if (typeof value !== "object" || value === null) {
    throw wrong("schema", value, "a JSON schema, or a schema of Zod");
  }
  const { toJSONSchema, "~standard": standard } = value as {
    toJSONSchema?: unknown;
    "~standard"?: { jsonSchema?: { input?: unknown } };
  };
  if (typeof toJSONSchema === "function") return toJSONSchema.call(value) as unknown;
  const input = standard?.jsonSchema?.input;
  if (typeof input === "function") return input({ target: "draft-2020-12" }) as unknown;
  if (standard !== undefined) {
    throw new UsageError(
      "schema: this object validates values, but cannot describe itself as a JSON schema. Give the JSON schema instead",
    );
  }
  return value;
}

function patternOf({ source, flags }: RegExp): string {
  const other = flags.replace(/[dguvy]/g, "");
  if (other === "") return source;
  throw new UsageError(`regex: got the flags ${flags}, expected none that change what matches`);
}

/** Checked, since they may come from JSON. */
export function checkedTriggers(triggers: unknown): readonly GrammarTrigger[] {
  if (triggers === undefined) return [];
  if (!Array.isArray(triggers) || triggers.length === 0 || triggers.length > MOST_TRIGGERS) {
    throw wrong("grammarTriggers", triggers, `a list of 1 to ${MOST_TRIGGERS} triggers`);
  }
  for (const trigger of triggers as unknown[]) {
    const { text, token, pattern } = (trigger ?? {}) as Partial<Record<string, unknown>>;
    const isText = (one: unknown) => typeof one === "string" && one !== "" && one.length <= 1000;
    if (!isText(text) && !isText(pattern) && !Number.isSafeInteger(token)) {
      throw wrong("grammarTriggers", trigger, "an object with a text, a pattern or a token id");
    }
  }
  return triggers as GrammarTrigger[];
}

const MOST_TRIGGERS = 100;

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function wrong(name: string, got: unknown, expected: string): UsageError {
  return new UsageError(`${name}: got ${show(got)}, expected ${expected}`);
}
