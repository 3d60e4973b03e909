// Turns JSON Schema (2020-12, and the older drafts' spellings of the same) into rules: documents -> shapes -> rules.
//
// A keyword that is not supported is an error with its path. Properties come in the schema's order. Constraints that are mentioned
// but not enforced (formats that the standard does not define, uniqueItems of free items) go to `notes`.

import type { JsonSchemaOptions } from "../../api/grammar-source.ts";
import { GrammarError } from "../errors.ts";
import type { Node, Rules } from "../nodes.ts";
import type { Expressions } from "../regex/expressions.ts";
import { Documents, isObject } from "./documents.ts";
import { Normalizer } from "./normalize.ts";
import { NumberLanguages } from "./numbers.ts";
import { OwnShapes } from "./own-shapes.ts";
import { StringLanguages } from "./strings.ts";
import { SchemaWriter } from "./write.ts";

interface Languages {
  readonly strings: StringLanguages;
  readonly numbers: NumberLanguages;
}

const kept = new WeakMap<Expressions, Languages>();

/** Formats, patterns and character sets are compiled once for all schemas. */
function languagesOf(of: Expressions): Languages {
  let languages = kept.get(of);
  if (languages === undefined) {
    languages = { strings: new StringLanguages(of), numbers: new NumberLanguages(of) };
    kept.set(of, languages);
  }
  return languages;
}

export function readJsonSchema(
  schema: unknown,
  of: Expressions,
  rules: Rules,
  notes: string[],
  options: JsonSchemaOptions = {},
): Node {
  if (typeof schema !== "boolean" && !isObject(schema)) {
    throw new GrammarError("json schema: expected an object or a boolean");
  }
  const documents = new Documents(schema, of.meter);
  const { strings, numbers } = languagesOf(of);
  const own = new OwnShapes(documents, strings, notes);
  const normalizer = new Normalizer(documents, own, strings, numbers, of.meter);
  const { compact = false, concise = false } = options;
  const writing = { compact, concise };
  const writer = new SchemaWriter(of, rules, normalizer, strings, numbers, writing, notes);
  const root = typeof schema === "boolean" ? (schema ? [] : undefined) : [documents.id(schema) + 1];
  return writer.write(root);
}
