// Values against JSON Schemas: what is wrong is found and named, and no schema takes unbounded work.

import { expect, test } from "vitest";
import { schemaProblems } from "../../../src/engine/tools/schema-check.ts";

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
  [{ pattern: "(a+)+$" }, `${"a".repeat(40)}b`], // left to the tool
  [{ $ref: "#/$defs/a~1b", $defs: { "a/b": { type: "number" } } }, 1],
];
test.each(right)("%j takes %j", (schema, value) => {
  expect(schemaProblems(schema, value)).toEqual([]);
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
];
test.each(wrong)("%j refuses %j", (schema, value, problem) => {
  expect(schemaProblems(schema, value).join("; ")).toContain(problem);
});

test("schemas that never end, or that double at every level, are given up", () => {
  expect(schemaProblems({ $ref: "#" }, 1).join()).toContain("too large or too deep");
  const both = { $ref: "#/$defs/x" };
  const doubling = { $defs: { x: { anyOf: [both, both] } }, ...both };
  expect(schemaProblems(doubling, 1).join()).toContain("too large or too deep");
});

test("names of prototypes are ordinary names", () => {
  const value: unknown = JSON.parse('{"__proto__": 1, "constructor": 2}');
  expect(schemaProblems({ additionalProperties: false }, value)).toHaveLength(2);
  expect(schemaProblems({ required: ["toString"] }, {})).toHaveLength(1);
});
