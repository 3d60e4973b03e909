// The part of schema-check.ts that is loaded late: src/grammar's reader of JSON Schemas.

import { readJsonSchema } from "../../../src/grammar/json-schema/read.ts";
import { Rules } from "../../../src/grammar/nodes.ts";
import { Expressions } from "../../../src/grammar/regex/expressions.ts";

/** What the schemas of a page share; a large one is replaced. */
let shared = new Expressions();
const large = 100_000;

export function schemaError(schema: unknown): string | null {
  if (shared.size > large) shared = new Expressions();
  const rules = new Rules();
  rules.add("root");
  try {
    rules.set(0, readJsonSchema(schema, shared, rules, []));
    return null;
  } catch (error) {
    if (error instanceof RangeError) return "The schema is nested too deep.";
    return error instanceof Error ? error.message : String(error);
  }
}
