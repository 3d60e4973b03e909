// The part of schema-check.ts that is loaded late: src/grammar's reader of JSON Schemas.

import { readJsonSchema } from "../../../../src/grammar/json-schema/read.ts";
import { Rules } from "../../../../src/grammar/nodes.ts";
import { Expressions } from "../../../../src/grammar/regex/expressions.ts";
import { sentence } from "../api.ts";

export interface SchemaCheck {
  /** The reason why a text is no schema that can be enforced; null: it is one. */
  problem: string | null;
  /** Keywords that it has and that are not enforced. */
  notes: readonly string[];
}

/** The expressions that the schemas of a page share; a large cache is replaced. */
let shared = new Expressions();
const large = 100_000;

export function readSchema(schema: unknown): SchemaCheck {
  if (shared.size > large) shared = new Expressions();
  const rules = new Rules();
  rules.add("root");
  try {
    const notes: string[] = [];
    rules.set(0, readJsonSchema(schema, shared, rules, notes));
    return { problem: null, notes };
  } catch (error) {
    const isDeep = error instanceof RangeError;
    return { problem: isDeep ? "The schema is nested too deep." : sentence(error), notes: [] };
  }
}
