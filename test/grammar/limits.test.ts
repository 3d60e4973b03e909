// Hostile grammars: large ones work, endless ones end in an error that says what is too large.

import { describe, expect, test } from "vitest";
import { GrammarError } from "../../src/grammar/errors.ts";
import { compile, expectExactMask, takes } from "./support.ts";

describe("limits", () => {
  test("10,000 optional properties", () => {
    const keys = Array.from({ length: 10_000 }, (_, i) => `key${i}`);
    const properties = Object.fromEntries(keys.map((key) => [key, { type: "integer" }]));
    const grammar = compile({
      schema: { type: "object", properties, additionalProperties: false },
    });
    expect(takes(grammar, '{"key77": 1, "key9999": 2}')).toBe(true);
    expect(takes(grammar, '{"key10000": 1}')).toBe(false);
  });

  test("a regular expression whose automaton explodes ends in an error, or works", () => {
    const source = `(a|b)*a(a|b){20}(${Array.from({ length: 30 }, (_, i) => `a{${i}}b`).join("|")})*`;
    const grammar = compile({ regex: source });
    expectExactMask(grammar, grammar.start());
    expect(() => compile({ regex: "((a{99999}){99999}){99999}" }).start()).not.toThrow();
  });

  test.each<[string, unknown]>([
    [
      "too many combinations",
      {
        allOf: Array.from({ length: 16 }, (_, i) => ({
          anyOf: Array.from({ length: 3 }, (_, j) => ({ required: [`${i},${j}`] })),
        })),
      },
    ],
    ["too many counted items", { type: "array", minItems: 1_000_000 }],
    [
      "too many groups of keys",
      {
        patternProperties: Object.fromEntries(
          Array.from({ length: 7 }, (_, i) => [`x${i}`, { type: "integer" }]),
        ),
        type: "object",
      },
    ],
    [
      "nested too deep",
      Array.from({ length: 20_000 }).reduce<unknown>(
        (inner) => ({ type: "array", items: inner }),
        {},
      ),
    ],
  ])("%s", (_, schema) => {
    expect(() => compile({ schema })).toThrow(GrammarError);
  });
});
