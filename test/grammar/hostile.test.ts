// Hostile sources: what explodes, nests without end or refers to itself ends soon, with a grammar or with an error of ours.

import { describe, expect, test } from "vitest";
import type { GrammarSource } from "../../src/api/grammar-source.ts";
import { GrammarError } from "../../src/grammar/errors.ts";
import { compile, generate } from "./support.ts";

describe("hostile sources", () => {
  const deep = (levels: number, open: string, close: string): string =>
    open.repeat(levels) + close.repeat(levels);
  const rules = Array.from({ length: 100_000 }, (_, i) => `r${i} ::= "a" r${i + 1}`);

  test.each<[string, GrammarSource]>([
    ["repetitions of repetitions", { regex: "(a*)*b" }],
    ["repetitions of nothing", { regex: "((a?){50}){50}b" }],
    ["products of counts", { regex: "x{1,1000}{1,1000}" }],
    ["nested products of counts", { regex: "((x{1,1000}){1,1000}y?){1,1000}" }],
    ["a count beyond all numbers", { regex: "a{1,99999999999999999999}" }],
    ["large classes", { regex: "[\\u{0}-\\u{10ffff}]{3}[^\\u{100}-\\u{10fffe}]*\\p{L}+" }],
    ["an automaton that explodes", { regex: "(.*a.{12}){2}b" }],
    ["a lookahead in front of everything", { regex: "(?=.*a)(?=.*b)(?=.*c)(?!.*d.*e).{0,200}" }],
    ["deep groups", { regex: deep(20_000, "(", ")") }],
    ["deep GBNF groups", { gbnf: `root ::= ${deep(20_000, "(", ")")}` }],
    ["100,000 GBNF rules", { gbnf: `root ::= r0\n${rules.join("\n")}\nr100000 ::= ""` }],
    ["GBNF counts", { gbnf: 'root ::= (("a"{1,9999} | root2){1,9999}){1,9999}\nroot2 ::= "b"' }],
    ["GBNF rules that double", { gbnf: doubling(40) }],
    ["20,000 choices", { choices: Array.from({ length: 20_000 }, (_, i) => `choice ${i}`) }],
  ])("%s", (_, source) => {
    expect(outcome(source)).toMatch(/^(exact|GrammarError|GrammarSizeError|GrammarBudgetError)$/);
  });

  test.each<[string, unknown]>([
    ["a $ref to itself", { $defs: { a: { $ref: "#/$defs/a" } }, $ref: "#/$defs/a" }],
    [
      "$refs in a circle",
      { $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } }, $ref: "#/$defs/a" },
    ],
    ["a circle through allOf", { allOf: [{ type: "object" }, { $ref: "#" }] }],
    ["a circle through not", { not: { $ref: "#" } }],
    ["objects without end", { type: "object", properties: { a: { $ref: "#" } }, required: ["a"] }],
    ["recursion in all directions", everywhere()],
    ["3,000 required properties that are unevaluated", many(3000)],
    ["a large enum", { enum: Array.from({ length: 10_000 }, (_, i) => `value ${i}`) }],
    ["negations of negations", nested(200, (inner) => ({ not: inner }))],
    [
      "branches of branches",
      nested(12, (inner) => ({ oneOf: [inner, { anyOf: [inner, { not: inner }] }] })),
    ],
    ["counts", { type: "array", maxItems: 1e9, items: { type: "string", minLength: 1e9 } }],
    ["a string as long as memory", { type: "string", minLength: 1e15, maxLength: 1e300 }],
    [
      "patterns that all overlap",
      {
        patternProperties: Object.fromEntries(
          Array.from({ length: 12 }, (_, i) => [`a.{${i}}b`, { const: i }]),
        ),
        type: "object",
      },
    ],
    [
      "contains of contains",
      { allOf: Array.from({ length: 10 }, (_, i) => ({ contains: { const: i }, maxContains: 9 })) },
    ],
    [
      "__proto__",
      JSON.parse(
        '{"properties":{"__proto__":{"type":"integer"},"constructor":{"const":1}},"required":["__proto__"],"type":"object"}',
      ),
    ],
  ])("schema: %s", (_, schema) => {
    expect(outcome({ schema })).toMatch(
      /^(exact|GrammarError|GrammarSizeError|GrammarBudgetError)$/,
    );
  });
});

function outcome(source: GrammarSource): string {
  try {
    const grammar = compile(source);
    generate(grammar, 7, 5);
    return "exact";
  } catch (error) {
    if (error instanceof GrammarError) return error.constructor.name;
    throw error;
  }
}

function doubling(rules: number): string {
  const lines = Array.from({ length: rules }, (_, i) => `r${i} ::= r${i + 1} r${i + 1}`);
  return `root ::= r0\n${lines.join("\n")}\nr${rules} ::= "a"?`;
}

function nested(levels: number, wrap: (inner: unknown) => unknown): unknown {
  let schema: unknown = { type: "object", properties: { a: { type: "integer" } } };
  for (let i = 0; i < levels; i++) schema = wrap(schema);
  return schema;
}

function everywhere(): unknown {
  const again = { $ref: "#" };
  return {
    properties: { a: again },
    additionalProperties: again,
    items: again,
    contains: again,
    propertyNames: again,
    dependentSchemas: { a: again },
  };
}

function many(count: number): unknown {
  const keys = Array.from({ length: count }, (_, i) => `key${i}`);
  const properties = Object.fromEntries(keys.map((key) => [key, { type: "integer" }]));
  return { type: "object", allOf: [{ properties }], required: keys, unevaluatedProperties: false };
}
