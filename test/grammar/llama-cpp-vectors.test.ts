// llama.cpp's own grammar tests as data (data/llama-cpp-vectors.json, from tests/test-grammar-integration.cpp, test-grammar-parser.cpp,
// test-grammar-llguidance.cpp, its schemas, and test-json-schema-to-grammar.cpp, MIT): grammars with texts that they take and refuse. Where Lantern answers
// differently, the difference is named below with its reason; a difference that goes away must leave the list.

import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { GrammarSource } from "../../src/api/grammar-source.ts";
import { GrammarError } from "../../src/grammar/errors.ts";
import type { Grammar } from "../../src/grammar/grammar.ts";
import { compile } from "./support.ts";

/** Numbers are tokens by id. */
type Text = string | readonly (string | number)[];

interface IntegrationCase {
  readonly name: string;
  readonly gbnf?: string;
  readonly schema?: unknown;
  readonly takes?: readonly Text[];
  readonly refuses?: readonly Text[];
  readonly ok?: boolean;
}

interface Vectors {
  readonly integration: readonly IntegrationCase[];
  readonly llguidance: readonly IntegrationCase[];
  readonly parser: readonly { readonly gbnf: string; readonly ok: boolean }[];
  /** `gbnf`: what llama.cpp makes of the schema. */
  readonly schemas: readonly {
    readonly name: string;
    readonly schema: unknown;
    readonly gbnf: string;
    readonly ok: boolean;
  }[];
}

const vectors = JSON.parse(
  readFileSync(new URL("data/llama-cpp-vectors.json", import.meta.url), "utf8"),
) as Vectors;

/** Integration: llama.cpp narrows a schema where JSON Schema does not. */
const differences: Readonly<Record<string, string>> = {
  'takes min 0: "100000000000000000000000000000000"':
    "integers have as many digits as they need, not 16",
  'takes min 0: "-0"': "-0 is not below 0",
  'takes min 2: "12345678900000000"': "integers have as many digits as they need, not 16",
  'takes empty schema (object): "[]"': "{} allows any value, not only objects",
  'takes empty schema (object): "null"': "as above",
  'takes empty schema (object): "\\"\\""': "as above",
  'takes empty schema (object): "true"': "as above",
  'takes min+max items: "1"': "without a type, minItems and maxItems say nothing about numbers",
  'takes object properties: "{ \\"number\\": 1600, \\"street_name\\": \\"Pennsylvania\\", \\"street_type\\":\\"Avenue\\", \\"direction\\":\\"NW\\"}"':
    "other keys are allowed unless additionalProperties forbids them",
};

/** The parser's: by a part of the grammar. */
const parserDifferences: Readonly<Record<string, string>> = {
  "{0,99}": "repetitions are counted, not copied, so that their limits are higher",
  "{5000}": "as above",
  "{5000,}": "as above",
  "{5000,6000}": "as above",
  "<[1000]>": "the vocabulary of these tests has no token 1000",
};

/** Schemas that are no schemas: prefixItems must be a list. */
const schemaDifferences: readonly string[] = [
  "string array",
  "nullable string array",
  "array with empty items and prefixItems",
];

function compiles(source: GrammarSource): boolean {
  try {
    compile(source);
    return true;
  } catch (error) {
    if (error instanceof GrammarError) return false;
    throw error;
  }
}

function takes(grammar: Grammar, text: Text): boolean {
  const state = grammar.start();
  for (const part of typeof text === "string" ? [text] : text) {
    const tokens =
      typeof part === "number" ? [part] : [...Buffer.from(part)].map((byte) => byte + 2);
    for (const token of tokens) if (!state.accept(token)) return false;
  }
  return state.isComplete;
}

/** What differs from llama.cpp's expectation, one line each. */
function differencesOf(one: IntegrationCase): string[] {
  const source: GrammarSource =
    one.gbnf === undefined ? { schema: one.schema } : { gbnf: one.gbnf };
  if (one.ok === false) return compiles(source) ? [`${one.name}: compiles`] : [];
  if (!compiles(source)) return [`${one.name}: does not compile`];
  const grammar = compile(source);
  const show = (text: Text): string => `${one.name}: ${JSON.stringify(text)}`;
  return [
    ...(one.takes ?? [])
      .filter((text) => !takes(grammar, text))
      .map((text) => `refuses ${show(text)}`),
    ...(one.refuses ?? [])
      .filter((text) => takes(grammar, text))
      .map((text) => `takes ${show(text)}`),
  ];
}

describe("llama.cpp's grammar vectors", () => {
  test("test-grammar-integration.cpp", () => {
    expect(vectors.integration.flatMap(differencesOf)).toEqual(Object.keys(differences));
  });

  test("test-grammar-llguidance.cpp", () => {
    expect(vectors.llguidance.flatMap(differencesOf)).toEqual(['takes min 0: "-0"']);
  });

  test("test-grammar-parser.cpp", () => {
    const wrong = vectors.parser.filter(({ gbnf, ok }) => compiles({ gbnf }) !== ok);
    const named = Object.keys(parserDifferences);
    expect(wrong.map(({ gbnf }) => named.find((part) => gbnf.includes(part)) ?? gbnf)).toEqual(
      named,
    );
  });

  test("test-json-schema-to-grammar.cpp", () => {
    const wrong = vectors.schemas.filter(({ schema, ok }) => compiles({ schema }) !== ok);
    expect(wrong.map(({ name }) => name)).toEqual(schemaDifferences);
    const unread = vectors.schemas.filter(({ gbnf, ok }) => ok && !compiles({ gbnf }));
    expect(unread.map(({ name }) => name)).toEqual([]);
  });
});
