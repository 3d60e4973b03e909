// Masks: exactly the tokens that can be taken, also across borders of rules and inside of characters; and what a state can do.
// Held against: each token, tried by itself.

import { describe, expect, test } from "vitest";
import type { GrammarSource } from "../../src/api/grammar-source.ts";
import { compile, expectExactMask, generate, takes } from "./support.ts";

const address = {
  type: "object",
  properties: {
    name: { type: "string", minLength: 1, maxLength: 6 },
    tags: { type: "array", items: { enum: ["ab", "abc", "日本"] }, maxItems: 3 },
    age: { type: "integer", minimum: 0, maximum: 130 },
    ok: { type: ["boolean", "null"] },
  },
  required: ["name"],
};

const sources: Readonly<Record<string, GrammarSource>> = {
  gbnf: { gbnf: 'root ::= "[" (item ("," item)*)? "]"\nitem ::= [a-z日]+ | root' },
  regex: { regex: "(ab|abc|日本)*[0-9]{2,4}" },
  choices: { choices: ["hello", "help", "日", "日本"] },
  schema: { schema: address },
  "any json": { schema: true },
  pattern: { schema: { type: "string", pattern: "a.*日" } },
  "keys that differ": {
    schema: {
      type: "object",
      properties: { name: true, nam: true },
      additionalProperties: { type: "integer" },
    },
  },
  tags: { tags: [{ begin: "<tool>", content: { schema: { type: "object" } }, end: "</tool>" }] },
};

describe("masks", () => {
  test.each(Object.entries(sources))("%s: a mask allows exactly what can be taken", (_, source) => {
    const grammar = compile(source);
    for (let seed = 1; seed <= 6; seed++) generate(grammar, seed * 7919, 24);
  });

  test("generated text of a bounded schema is valid JSON once it ends", () => {
    const grammar = compile({ schema: { ...address, additionalProperties: false } });
    let ended = 0;
    for (let seed = 1; seed <= 8; seed++) {
      const text = generate(grammar, seed * 104_729, 80);
      if (!takes(grammar, text)) continue;
      ended++;
      expect(JSON.parse(text)).toHaveProperty("name");
    }
    expect(ended).toBeGreaterThan(0);
  });

  test("structural tags: free text, then the grammar after the trigger, then free text", () => {
    const grammar = compile(sources.tags!);
    expect(takes(grammar, "hello <tool> no")).toBe(false);
    expect(takes(grammar, 'hello <tool>{"a": 1}</tool> and <tool>{}</tool>!')).toBe(true);
    expect(takes(grammar, "a < b <too")).toBe(true);
  });
});

describe("state", () => {
  test("rollback takes tokens back, and clones do not share", () => {
    const grammar = compile({ choices: ["abc", "abd"] });
    const state = grammar.start();
    for (const letter of "ab") state.accept(letter.charCodeAt(0) + 2);
    const other = state.clone();
    expect(other.accept("c".charCodeAt(0) + 2)).toBe(true);
    expect(other.isFinished).toBe(true);
    expect(state.isComplete).toBe(false);
    state.rollback(1);
    expect(state.length).toBe(1);
    expect(state.accept("d".charCodeAt(0) + 2)).toBe(false);
    expect(state.accept("b".charCodeAt(0) + 2)).toBe(true);
    expect(state.accept("d".charCodeAt(0) + 2)).toBe(true);
    expect(() => state.rollback(9)).toThrow("rollback of 9 tokens");
  });

  test("forced bytes are those without a choice", () => {
    const state = compile({ choices: ["hello world", "hello there"] }).start();
    expect(new TextDecoder().decode(state.forced())).toBe("hello ");
    expect(state.acceptBytes(state.forced())).toBe(true);
    expect(state.forced()).toHaveLength(0);
  });

  test("the end token is allowed exactly where the text is whole", () => {
    const grammar = compile({ regex: "ab*" });
    const state = grammar.start();
    expect(expectExactMask(grammar, state)).not.toContain(0);
    state.accept("a".charCodeAt(0) + 2);
    expect(expectExactMask(grammar, state)).toContain(0);
    expect(state.accept(0)).toBe(true);
    expect(state.isFinished).toBe(true);
  });
});
