// Values against JSON Schemas: what is wrong is found and named, and no schema takes unbounded work.

import { expect, test } from "vitest";
import { schemaProblems } from "../../../src/engine/tools/schema-check.ts";

// biome-ignore lint/suspicious/noThenProperty: JSON Schema's
const conditional = { if: { const: 1 }, then: false, else: { const: 2 } };

const right: [unknown, unknown][] = [
  [true, 1],
  [{}, { any: "thing" }],
  [{ type: "number" }, 3],
  [{ type: ["string", "null"] }, null],
  [{ type: "integer", multipleOf: 0.1 }, 3],
  [{ enum: [{ a: 1, b: [2] }] }, { b: [2], a: 1 }],
  [{ const: null }, null],
  [{ maxLength: 1 }, "😀"],
  [{ prefixItems: [{ type: "string" }], items: { type: "number" } }, ["a", 1, 2]],
  [{ additionalProperties: { type: "number" } }, { a: 1 }],
  [{ additionalProperties: false, patternProperties: { "^a": {} } }, { a: 1 }],
  [{ oneOf: [{ type: "string" }, { type: "number" }] }, 1],
  [{ not: { type: "string" } }, 1],
  [{ pattern: "(a+)+$" }, `b${"a".repeat(40)}`],
  [{ pattern: "(a)\\1" }, "b"], // has no regular language: left to the tool
  [{ format: "email" }, "nobody"], // an annotation
  [{ patternProperties: { "^n_": { type: "number" } }, additionalProperties: false }, { n_a: 1 }],
  [
    { properties: { b: {}, a: {} }, required: ["a", "b"] },
    { a: 1, b: 2 },
  ], // any order
  [conditional, 2],
  [{ dependentRequired: { a: ["b"] } }, { b: 1 }],
  [{ contains: { type: "string" }, minContains: 0, maxContains: 1 }, [1, "a"]],
  [{ uniqueItems: true }, [1, "1", { a: 1 }, { a: 2 }]],
  [{ items: [{ type: "string" }], additionalItems: { type: "number" } }, ["a", 1]], // until 2019-09
  [{ $ref: "#place", $defs: { x: { $anchor: "place", type: "number" } } }, 1],
  [{ $id: "https://a.org/b", $ref: "c", $defs: { x: { $id: "c", type: "number" } } }, 1],
  [
    { $schema: "http://json-schema.org/draft-07/schema#", $ref: "#/x", x: {}, type: "string" },
    1, // until draft 7, a $ref replaces its neighbours
  ],
  [{ $ref: "#/$defs/a~1b", $defs: { "a/b": { type: "number" } } }, 1],
];
test.each(right)("%j takes %j", async (schema, value) => {
  expect(await schemaProblems(schema, value)).toEqual([]);
});

const wrong: [unknown, unknown, string][] = [
  [false, 1, "nothing is allowed here"],
  [{ type: "integer" }, 1.5, "got number, expected integer"],
  [{ type: "object" }, [], "got array, expected object"],
  [{ enum: ["a", "b"] }, "c", 'got "c", expected one of "a", "b"'],
  [{ const: 1 }, "1", 'got "1", expected 1'],
  [{ exclusiveMinimum: 0 }, 0, "got 0, expected more than 0"],
  [{ minItems: 2 }, [1], "got 1, expected a length of at least 2"],
  [{ required: ["a"] }, {}, '"a" is missing'],
  [{ items: { type: "string" } }, ["a", 1], "[1]: got integer, expected string"],
  [{ properties: { a: { properties: { b: false } } } }, { a: { b: 1 } }, "a.b: nothing is"],
  [{ anyOf: [{ type: "string" }, { type: "null" }] }, 1, "fits none of the alternatives"],
  [{ oneOf: [{}, { type: "number" }] }, 1, "fits 2 of the alternatives, expected one"],
  [{ not: {} }, 1, "is what the schema excludes"],
  [{ $ref: "#/$defs/none" }, 1, 'the schema has no "#/$defs/none"'],
  [{ $ref: "https://example.org/schema" }, 1, "the schema has no"],
  [{ $ref: "#/constructor" }, 1, "the schema has no"],
  [{ pattern: "(a+)+$" }, `${"a".repeat(40)}b`, "expected a text that fits the pattern"],
  [{ properties: { a: { pattern: "^[0-9]+$" } } }, { a: "x" }, 'a: got "x", expected a text that'],
  [{ patternProperties: { "^n_": { type: "number" } } }, { n_a: "1" }, "n_a: got string"],
  [{ patternProperties: { a: {} }, additionalProperties: false }, { b: 1 }, '"b" is unknown'],
  [{ propertyNames: { maxLength: 2 } }, { abc: 1 }, "abc (its name): got 3, expected a length of"],
  [conditional, 1, "nothing is allowed"],
  [conditional, 3, "got 3, expected 2"],
  [{ dependentRequired: { a: ["b"] } }, { a: 1 }, '"b" is missing, which "a" needs'],
  [{ dependentSchemas: { a: { required: ["b"] } } }, { a: 1 }, '"b" is missing'],
  [{ contains: { type: "string" } }, [1], "0 of its items are as it must contain"],
  [{ contains: { type: "string" }, maxContains: 1 }, ["a", "b"], "expected at most 1"],
  [
    { uniqueItems: true },
    [
      { a: 1, b: 2 },
      { b: 2, a: 1 },
    ],
    "has an item twice",
  ],
  [{ enum: ["x".repeat(1000)] }, 1, "..."], // what is said is bounded
];
test.each(wrong)("%j refuses %j", async (schema, value, problem) => {
  expect((await schemaProblems(schema, value)).join("; ")).toContain(problem);
});

test("schemas that never end, or that double at every level, are given up", async () => {
  expect((await schemaProblems({ $ref: "#" }, 1)).join()).toContain("too large or too deep");
  const both = { $ref: "#/$defs/x" };
  const doubling = { $defs: { x: { anyOf: [both, both] } }, ...both };
  expect((await schemaProblems(doubling, 1)).join()).toContain("too large or too deep");
});

test("names of prototypes are ordinary names", async () => {
  const value: unknown = JSON.parse('{"__proto__": 1, "constructor": 2}');
  expect(await schemaProblems({ additionalProperties: false }, value)).toHaveLength(2);
  expect(await schemaProblems({ required: ["toString"] }, {})).toHaveLength(1);
});

test("patterns of a stranger take bounded work: what is too much is left to the tool", async () => {
  const names = Object.fromEntries(
    Array.from({ length: 20 }, (_, at) => [`${"a".repeat(200)}${at}`, 1]),
  );
  const slow = Object.fromEntries(
    Array.from({ length: 50 }, (_, at) => [`(a|a?){300}(b|c){${at}}[^${at % 10}]{200}$`, {}]),
  );
  expect(await schemaProblems({ patternProperties: slow }, names)).toEqual([]);
});
