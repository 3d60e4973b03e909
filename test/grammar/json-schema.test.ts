// JSON Schema: for each keyword the values that it takes and refuses, and the errors of what is not supported.

import { describe, expect, test } from "vitest";
import { compile, taken } from "./support.ts";

type Case = readonly [schema: unknown, yes: readonly unknown[], no: readonly unknown[]];

const list = {
  type: "object",
  properties: { next: { $ref: "#" }, v: { type: "integer" } },
  additionalProperties: false,
};
const closed = { type: "object", additionalProperties: false };

const cases: Readonly<Record<string, Case>> = {
  "not contains": [{ type: "array", not: { contains: { const: 1 } } }, [[], [2]], [[1], [2, 1]]],
  maxContains: [
    { type: "array", contains: { type: "integer" }, minContains: 1, maxContains: 2 },
    [[1], ["a", 1, 2, "b"]],
    [[], ["a"], [1, 2, 3], [1, "a", 2, "b", 3]],
  ],
  "two contains": [
    { type: "array", allOf: [{ contains: { const: 1 } }, { contains: { const: 2 } }] },
    [
      [1, 2],
      [2, 3, 1],
    ],
    [[1], [2, 3], []],
  ],
  "not additionalProperties": [
    { type: "object", not: { properties: { a: true }, additionalProperties: false } },
    [{ b: 1 }, { a: 1, b: 2 }],
    [{}, { a: 1 }],
  ],
  "not additionalProperties with a schema": [
    { type: "object", not: { additionalProperties: { type: "integer" } } },
    [{ a: "x" }, { a: 1, b: null }],
    [{}, { a: 1 }],
  ],
  "not patternProperties": [
    { type: "object", not: { patternProperties: { "^x": { type: "integer" } } } },
    [{ xy: "a" }, { b: 1, x: null }],
    [{}, { x: 1 }, { b: "a" }],
  ],
  "not propertyNames": [
    { type: "object", not: { propertyNames: { maxLength: 2 } } },
    [{ abc: 1 }, { a: 1, abc: 2 }],
    [{}, { ab: 1 }],
  ],
  "not multipleOf": [
    { type: "number", not: { multipleOf: 3 }, maximum: 20 },
    [1, 2.5, 20, -4],
    [3, 0, -9, 18],
  ],
  "not lists and objects": [
    { not: { enum: [[1, 2], { a: 1 }, "x"] } },
    [[1], [1, 3], [1, 2, 3], {}, { a: 2 }, { a: 1, b: 2 }, "y", 5],
    [[1, 2], { a: 1 }, "x"],
  ],
  "not format": [{ type: "string", not: { format: "date" } }, ["a", ""], ["2024-01-31"]],
  "not items": [
    { type: "array", not: { prefixItems: [{ type: "integer" }], items: false } },
    [["a"], [1, 2]],
    [[], [1]],
  ],
  "oneOf with branches that overlap": [
    {
      type: "object",
      oneOf: [
        { properties: { a: { type: "integer" } }, additionalProperties: false },
        { properties: { b: { type: "integer" } }, additionalProperties: false },
      ],
    },
    [{ a: 1 }, { b: 1 }],
    [{}, { c: 1 }, { a: "x" }],
  ],
  "many key patterns": [
    {
      type: "object",
      patternProperties: Object.fromEntries(
        Array.from({ length: 20 }, (_, i) => [`^${String.fromCharCode(97 + i)}`, { const: i }]),
      ),
      additionalProperties: false,
    },
    [{ a: 0, cx: 2 }],
    [{ a: 1 }, { z: 1 }],
  ],
  unevaluatedProperties: [
    {
      type: "object",
      properties: { a: true },
      anyOf: [{ properties: { b: true }, required: ["b"] }, { properties: { c: true } }],
      unevaluatedProperties: false,
    },
    [
      { a: 1, b: 2 },
      { a: 1, c: 2 },
      { b: 1, c: 2 },
    ],
    [{ d: 1 }, { a: 1, d: 1 }],
  ],
  "unevaluatedProperties and opposites": [
    {
      type: "object",
      not: { not: { properties: { b: { const: 1 } } } },
      properties: { a: true },
      unevaluatedProperties: false,
    },
    [{ a: 1 }, {}],
    [{ b: 1 }],
  ],
  unevaluatedItems: [
    { type: "array", allOf: [{ prefixItems: [{ type: "integer" }] }], unevaluatedItems: false },
    [[], [1]],
    [[1, 2], ["a"]],
  ],
  $dynamicRef: [
    {
      $dynamicAnchor: "node",
      type: "object",
      properties: { next: { $dynamicRef: "#node" } },
      additionalProperties: false,
    },
    [{ next: { next: {} } }, {}],
    [{ next: 1 }, { next: { a: 1 } }],
  ],
  "schemas that are compared while they are read": [
    {
      $defs: {
        a: {
          oneOf: [
            { type: "object", properties: { x: { $ref: "#/$defs/a" } }, required: ["x"] },
            { type: "object", properties: { y: { const: 1 } }, required: ["y"], maxProperties: 1 },
          ],
        },
      },
      $ref: "#/$defs/a",
    },
    [{ y: 1 }, { x: { y: 1 } }],
    [{ x: 1 }, {}],
  ],
  type: [{ type: ["integer", "null"] }, [1, -20, null], [1.5, "1", true, []]],
  "any value": [true, [null, true, 1.5e3, "a", [1, [2]], { a: { b: [] } }], []],
  enum: [
    { enum: ["a", 1, null, [1, "x"], { k: 2 }] },
    ["a", 1, null, [1, "x"], { k: 2 }],
    ["b", 2, [1], {}],
  ],
  const: [{ const: 'q"\n' }, ['q"\n'], ["q"]],
  minimum: [
    { type: "integer", minimum: -12, maximum: 305 },
    [-12, 0, 305, 99, 300],
    [-13, 306, 1000, 310],
  ],
  exclusiveMinimum: [
    { type: "integer", exclusiveMinimum: 7, exclusiveMaximum: 10 },
    [8, 9],
    [7, 10, 80],
  ],
  "number bounds": [
    { type: "number", minimum: 0.25, exclusiveMaximum: 3.5 },
    [0.25, 0.3, 1, 3.49, 3],
    [0.2, 0.24, 3.5, 4, -1, 30],
  ],
  "negative bounds": [
    { type: "number", minimum: -2.5, maximum: -0.5 },
    [-2.5, -1, -0.5, -0.75],
    [-2.6, 0, 1, -0.25],
  ],
  "boolean exclusiveMinimum": [{ type: "integer", minimum: 3, exclusiveMinimum: true }, [4], [3]],
  multipleOf: [{ type: "integer", multipleOf: 7 }, [0, 7, -14, 700], [1, 8, 13]],
  "decimal multipleOf": [
    { type: "number", multipleOf: 0.25 },
    [0, 0.25, 1.5, 2, 10.75],
    [0.2, 0.3, 1.26],
  ],
  minLength: [
    { type: "string", minLength: 2, maxLength: 3 },
    ["ab", "日本語", '"\n', "😀😀"],
    ["a", "abcd", "日"],
  ],
  pattern: [{ type: "string", pattern: "^[a-z]+$", minLength: 2 }, ["ab"], ["a", "A", "ab1"]],
  "date-time": [
    { format: "date-time" },
    ["2026-01-31T23:59:59Z", "2026-01-01T00:00:00.5+01:00", 5],
    ["2026-02-30T00:00:00Z", "now"],
  ],
  uuid: [
    { type: "string", format: "uuid" },
    ["123e4567-e89b-12d3-a456-426614174000"],
    ["123e4567"],
  ],
  email: [{ type: "string", format: "email" }, ["a.b@example.org"], ["a@", "example"]],
  ipv6: [
    { type: "string", format: "ipv6" },
    ["::1", "2001:db8::8a2e:370:7334"],
    ["12345::", "1:2"],
  ],
  int32: [{ type: "integer", format: "int32" }, [2147483647], [2147483648]],
  items: [
    { type: "array", items: { type: "boolean" }, minItems: 1, maxItems: 2 },
    [[true], [true, false]],
    [[], [1], [true, true, true]],
  ],
  prefixItems: [
    { type: "array", prefixItems: [{ const: 1 }, { const: 2 }], items: false },
    [[], [1], [1, 2]],
    [[2], [1, 2, 3]],
  ],
  "items as a list": [
    { items: [{ const: 1 }], additionalItems: { const: 2 } },
    [[], [1, 2, 2], "x"],
    [[2], [1, 1]],
  ],
  contains: [
    { type: "array", contains: { const: 5 }, minContains: 2 },
    [
      [5, 5],
      [1, 5, 2, 5],
    ],
    [[], [5, 1]],
  ],
  uniqueItems: [
    { type: "array", items: { enum: ["a", "b"] }, uniqueItems: true },
    [[], ["b", "a"]],
    [["a", "a"]],
  ],
  properties: [
    { properties: { a: { type: "integer" }, b: { type: "string" } }, required: ["b"] },
    [{ a: 1, b: "x" }, { b: "" }, { b: "x", c: [1] }, 7],
    [{}, { a: "1", b: "x" }, { a: 1 }, { b: "x", a: 1 }],
  ],
  "additionalProperties false": [
    { ...closed, properties: { a: true } },
    [{}, { a: 1 }],
    [{ b: 1 }, { a: 1, b: 1 }],
  ],
  "additionalProperties schema": [
    { additionalProperties: { type: "integer" }, properties: { s: { type: "string" } } },
    [{ s: "a", x: 1 }, { s1: 2 }],
    [{ s: 1 }, { x: "a" }],
  ],
  patternProperties: [
    {
      ...closed,
      patternProperties: { "^i": { type: "integer" }, s$: { type: "integer", minimum: 5 } },
    },
    [{ ia: 1 }, { is: 7, bs: 8 }],
    [{ ia: "x" }, { is: 1 }, { q: 1 }],
  ],
  "min and maxProperties": [
    { type: "object", minProperties: 1, maxProperties: 2, properties: { a: true } },
    [{ a: 1 }, { b: 1, c: 2 }],
    [{}, { a: 1, b: 1, c: 1 }],
  ],
  propertyNames: [
    { type: "object", propertyNames: { pattern: "^[a-z]+$" }, properties: { A: true } },
    [{}, { ab: 1 }],
    [{ A: 1 }, { a1: 1 }],
  ],
  dependentRequired: [
    { type: "object", properties: { a: true, b: true }, dependentRequired: { a: ["b"] } },
    [{}, { b: 1 }, { a: 1, b: 1 }],
    [{ a: 1 }],
  ],
  dependentSchemas: [
    { type: "object", properties: { a: true }, dependentSchemas: { a: { minProperties: 2 } } },
    [{}, { a: 1, b: 2 }, { c: 1 }],
    [{ a: 1 }],
  ],
  anyOf: [
    { anyOf: [{ type: "integer" }, { type: "string", maxLength: 1 }] },
    [1, "a"],
    ["ab", true],
  ],
  allOf: [
    { allOf: [{ type: "integer", minimum: 2 }, { maximum: 4 }], multipleOf: 2 },
    [2, 4],
    [1, 3, 6],
  ],
  "allOf of objects": [
    {
      allOf: [
        { properties: { a: { type: "integer" } }, required: ["a"] },
        { properties: { a: { minimum: 3 }, b: { const: 1 } } },
      ],
    },
    [{ a: 3 }, { a: 4, b: 1 }],
    [{ a: 2 }, { b: 1 }, { a: 4, b: 2 }],
  ],
  "oneOf, apart": [{ oneOf: [{ type: "integer" }, { type: "string" }] }, [1, "a"], [null]],
  "oneOf, overlapping": [
    {
      oneOf: [
        { type: "integer", minimum: 3 },
        { type: "integer", maximum: 5 },
      ],
    },
    [2, 6],
    [3, 4, 5],
  ],
  "oneOf by required": [
    {
      type: "object",
      properties: { a: true, b: true },
      oneOf: [{ required: ["a"] }, { required: ["b"] }],
    },
    [{ a: 1 }, { b: 1 }],
    [{}, { a: 1, b: 1 }],
  ],
  not: [{ type: "string", not: { enum: ["a", "bc"] } }, ["", "b", "ab"], ["a", "bc"]],
  "not a number": [{ type: "integer", not: { minimum: 3, maximum: 9 } }, [2, 10], [3, 9]],
  if: [
    {
      properties: { k: { enum: ["x", "y"] }, v: true },
      required: ["k"],
      if: { properties: { k: { const: "x" } } },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
      then: { required: ["v"] },
      else: { properties: { v: false } },
    },
    [{ k: "x", v: 1 }, { k: "y" }],
    [{ k: "x" }, { k: "y", v: 1 }],
  ],
  "$ref and recursion": [list, [{}, { next: { next: { v: 1 } }, v: 2 }], [{ next: 1 }, { w: 1 }]],
  "$defs and $anchor": [
    { $defs: { n: { $anchor: "num", type: "integer" } }, type: "array", items: { $ref: "#num" } },
    [[1]],
    [["a"]],
  ],
  $id: [
    {
      $id: "https://example.org/root",
      $defs: { n: { $id: "n", type: "integer" } },
      items: { $ref: "n" },
    },
    [[1]],
    [["a"]],
  ],
  "escaped keys": [{ ...closed, properties: { 'a"b\n': true } }, [{ 'a"b\n': 1 }], [{ a: 1 }]],
};

describe("json schema", () => {
  test.each(Object.entries(cases))("%s", (_, [schema, yes, no]) => {
    const texts = [...yes, ...no].map((value) => JSON.stringify(value));
    expect(taken({ schema }, texts)).toEqual(yes.map((value) => JSON.stringify(value)));
  });

  test("spaces and line ends between parts are allowed, unless compact", () => {
    const schema = { type: "object", properties: { a: { type: "array" } } };
    const texts = ['{"a":[1,2]}', '{ "a": [1, 2] }', '{\n  "a": [\n    1\n  ]\n}', '{"a":[]   }'];
    expect(taken({ schema }, texts)).toEqual(texts.slice(0, 3));
    expect(taken({ schema, schemaOptions: { compact: true } }, texts)).toEqual(texts.slice(0, 1));
  });

  test("a format that no standard defines is named in the notes", () => {
    const { notes } = compile({
      schema: { properties: { a: { type: "string", format: "slug" } } },
    });
    expect(notes).toEqual(['#/properties/a/format: "slug" is not enforced']);
  });

  test("uniqueItems of items with any text is named in the notes", () => {
    const schema = { type: "array", items: { type: "string" }, uniqueItems: true };
    expect(compile({ schema }).notes.join()).toMatch("#/uniqueItems");
    const few = { type: "array", items: { enum: [1, 2] }, uniqueItems: true };
    expect(compile({ schema: few }).notes).toEqual([]);
  });

  test.each([
    [
      { not: { properties: { a: true }, unevaluatedProperties: false } },
      "#/not/unevaluatedProperties",
    ],
    [
      { contains: { const: 1 }, type: "array", unevaluatedItems: false },
      "#/unevaluatedItems: beside contains",
    ],
    [
      {
        $defs: { a: { $dynamicAnchor: "x" }, b: { $dynamicAnchor: "x", $id: "b" } },
        $dynamicRef: "#x",
      },
      "several schemas",
    ],
    [{ items: { $dynamicRef: "#x" } }, "#/items/$dynamicRef"],
    [{ $ref: "https://example.org/other" }, "nothing is fetched"],
    [{ $ref: "#/$defs/none" }, "is not in this schema"],
    [{ $ref: "#" }, "refers to itself"],
    [{ type: "text" }, '"text" is not one of'],
    [{ type: "string", minLength: -1 }, "#/minLength"],
    [{ type: "string", pattern: "(a)\\1" }, "back reference"],
    [{ required: "a" }, "#/required"],
    [{ anyOf: [] }, "#/anyOf"],
    [false, "no text matches"],
    [{ type: "object", properties: { a: { $ref: "#" } }, required: ["a"] }, "no text matches"],
    [{ allOf: [{ type: "integer" }, { type: "string" }] }, "no text matches"],
    ["schema", "expected an object or a boolean"],
  ])("%j is refused: %s", (schema, reason) => {
    expect(() => compile({ schema })).toThrow(reason);
  });
});
