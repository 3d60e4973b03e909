// llama.cpp's own grammar tests as data (data/llama-cpp-vectors.json, from tests/test-grammar-integration.cpp, test-grammar-parser.cpp
// and test-json-schema-to-grammar.cpp, MIT): grammars with texts that they take and refuse. Where Lantern answers
// differently, the difference is named below with its reason; a difference that goes away must leave the list.

import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { GrammarError } from "../../src/grammar/errors.ts";
import type { Grammar } from "../../src/grammar/grammar.ts";
import type { GrammarSource } from "../../src/grammar/source.ts";
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

const differences: Readonly<Record<string, string>> = {};

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
    ...(one.takes ?? []).filter((text) => !takes(grammar, text)).map((text) => `refuses ${show(text)}`),
    ...(one.refuses ?? []).filter((text) => takes(grammar, text)).map((text) => `takes ${show(text)}`),
  ];
}

describe("llama.cpp's grammar vectors", () => {
  test("test-grammar-integration.cpp", () => {
    expect(vectors.integration.flatMap(differencesOf)).toEqual(Object.keys(differences));
  });

  test("test-grammar-parser.cpp", () => {
    const wrong = vectors.parser.filter(({ gbnf, ok }) => compiles({ gbnf }) !== ok);
    expect(wrong.map(({ gbnf }) => gbnf)).toEqual([]);
  });

  test("test-json-schema-to-grammar.cpp", () => {
    const wrong = vectors.schemas.filter(({ schema, ok }) => compiles({ schema }) !== ok);
    expect(wrong.map(({ name }) => name)).toEqual([]);
    const unread = vectors.schemas.filter(({ gbnf, ok }) => ok && !compiles({ gbnf }));
    expect(unread.map(({ name }) => name)).toEqual([]);
  });
});
