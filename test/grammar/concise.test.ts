// Schemas as models write them: no keys that the schema does not list and no endless digits. A subset of the schema's texts, never an
// empty one.

import { expect, test } from "vitest";
import { compile, generate, taken } from "./support.ts";

const concise = { concise: true };
const some = { properties: { a: {}, b: { type: "integer" } } };

const cases: [schema: object, yes: unknown[], no: unknown[]][] = [
  [some, [{}, { a: 1 }, { a: 1, b: 2 }], [{ a: 1, c: 3 }, { c: 3 }]],
  [{ ...some, required: ["c"] }, [{ c: 1 }, { a: 1, c: 1 }], [{}, { c: 1, d: 1 }]],
  // What the schema says of other keys counts, and so does what it asks for.
  [{ ...some, additionalProperties: true }, [{ c: 3 }], []],
  [{ ...some, additionalProperties: { type: "string" } }, [{ c: "x" }], [{ c: 3 }]],
  [{ ...some, patternProperties: { "^x": {} } }, [{ x: 1 }, { c: 1 }], []],
  [{ ...some, minProperties: 3 }, [{ a: 1, b: 2, c: 3 }], [{ a: 1, b: 2 }]],
  [{ type: "object" }, [{}, { any: 1 }], []],
  [{ allOf: [some, { properties: { c: {} } }] }, [{ a: 1, c: 3 }], [{ d: 1 }]],
  [{ anyOf: [some, { properties: { c: {} } }] }, [{ a: 1 }, { c: 3 }], [{ a: 1, c: 3 }]],
];

test.each(cases)("%j", (schema, yes, no) => {
  const texts = [...yes, ...no].map((value) => JSON.stringify(value));
  const object = { type: "object", ...schema };
  expect(taken({ schema: object, schemaOptions: concise }, texts)).toEqual(
    yes.map((value) => JSON.stringify(value)),
  );
  expect(taken({ schema: object }, texts)).toEqual(
    expect.arrayContaining([JSON.stringify(yes[0])]),
  );
});

const long = "1".repeat(17);
const numbers: [schema: object, yes: string[], no: string[]][] = [
  [
    { type: "number" },
    ["0", `-${long}.${long}e-300`, "1E+5"],
    [`${long}1`, `1.${long}1`, "1e1000"],
  ],
  [{ type: "integer" }, ["-0", long], [`${long}1`]],
  [{ type: "number", minimum: 5 }, ["5", `5.${long}`], ["4", `5.${long}1`]],
  // Where there are no shorter ones, long ones are taken.
  [{ type: "integer", minimum: 1e20 }, ["100000000000000000000"], ["1"]],
];
test.each(numbers)("digits of %j", (schema, yes, no) => {
  expect(taken({ schema, schemaOptions: concise }, [...yes, ...no])).toEqual(yes);
});

test("masks are exact, and texts end", () => {
  const schema = { type: "object", required: ["n"], properties: { n: { type: "number" } } };
  const grammar = compile({ schema, schemaOptions: concise });
  for (let seed = 1; seed <= 5; seed++) {
    const text = generate(grammar, seed, 120);
    expect(Object.keys(JSON.parse(text) as object)).toEqual(["n"]);
  }
});
