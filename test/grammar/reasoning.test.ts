// Reasoning before an answer: free text up to its end, and then the grammar of the answer.
// Held against: texts written here.

import { expect, test } from "vitest";
import { compile, controlToken, expectExactMask, taken } from "./support.ts";

const content = { choices: ["yes", "no"] };

test("is free text up to its end", () => {
  const source = { reasoning: { end: "\n</tool>" }, content };
  const right = ["</tool>yes", "so {} < </too </tool>\n\nno"];
  expect(taken(source, [...right, "yes", "a</tool>maybe", "</tool>yesno"])).toEqual(right);
});

test("may be opened or not", () => {
  const source = { reasoning: { start: "<tool>", end: "</tool>" }, content };
  const right = ["yes", "\nno", "<tool>yes</tool> no"];
  expect(taken(source, [...right, "<tool>yes", "hm</tool>yes"])).toEqual(right);
});

test("ends with a control token", () => {
  const grammar = compile({ reasoning: { end: "<control>" }, content });
  const state = grammar.start();
  for (const token of ["x".charCodeAt(0) + 2, controlToken, "n".charCodeAt(0) + 2]) {
    expect(expectExactMask(grammar, state)).toContain(token);
    expect(state.accept(token)).toBe(true);
  }
  expect(state.accept("x".charCodeAt(0) + 2)).toBe(false);
});

test("before GBNF, whose root may call itself", () => {
  const gbnf = 'root ::= "a" | "(" root ")"';
  const source = { reasoning: { end: "</tool>" }, content: { gbnf } };
  const right = ["z</tool>((a))", "</tool>a"];
  expect(taken(source, [...right, "a", "(z</tool>a)"])).toEqual(right);
});
