// GBNF: what grammars take, and what is wrong with bad ones.
// Held against: texts that a grammar takes or does not, written here.

import { describe, expect, test } from "vitest";
import { compile, controlToken, taken } from "./support.ts";
import { END } from "./vocabulary.ts";

const cases: readonly (readonly [
  name: string,
  gbnf: string,
  yes: readonly string[],
  no: readonly string[],
])[] = [
  ["texts and choices", 'root ::= "yes" | "no"', ["yes", "no"], ["", "y", "yesno"]],
  [
    "repetitions",
    'root ::= "a"* "b"+ "c"? "d"{2} "e"{1,2} "f"{1,}',
    ["bddef", "aabcddeeff"],
    ["bdef", "addef", "bddeee"],
  ],
  ["groups", 'root ::= ("a" "b")+ ("," ("c" | "d"))*', ["ab,c,d", "abab"], ["ab,", "a,c"]],
  ["classes", "root ::= [a-cx_]+ [^0-9] .", ["ax_?日"], ["ad!z", "a1z"]],
  [
    "escapes",
    'root ::= "\\n\\t\\"\\\\" [\\x41\\u00e9\\U0001F600]',
    ['\n\t"\\A', '\n\t"\\é', '\n\t"\\😀'],
    ['\n\t"\\B'],
  ],
  ["unicode", "root ::= [ぁ-ゟ]+", ["ひらがな"], ["カ"]],
  [
    "rules, comments and line ends",
    'root ::= a | # first\n  b\na ::= "1" (\n "2"\n )\n\n# end\nb ::= a "3"',
    ["12", "123"],
    ["1", "1212"],
  ],
  ["recursion", 'root ::= "(" root? ")"', ["()", "((()))"], ["(", "(()"]],
  ["empty alternatives", 'root ::= "a" ( | "b") "c"', ["ac", "abc"], ["a"]],
  ["tokens that share a start", 'root ::= "ab" | "abc" "d"', ["ab", "abcd"], ["abc"]],
];

describe("gbnf", () => {
  test.each(cases)("%s", (_, gbnf, yes, no) => {
    expect(taken({ gbnf }, [...yes, ...no])).toEqual(yes);
  });

  test("token literals match tokens by id and by text, and all others with !", () => {
    for (const gbnf of ['root ::= "a" <[1]> "b"', 'root ::= "a" <control> "b"']) {
      const state = compile({ gbnf }).start();
      expect(state.accept(0x61 + 2)).toBe(true);
      expect(state.accept(0x62 + 2)).toBe(false);
      expect(state.accept(controlToken)).toBe(true);
      expect(state.accept(0x62 + 2)).toBe(true);
      expect(state.isFinished).toBe(true);
    }
    const state = compile({ gbnf: "root ::= !<[1]>+" }).start();
    expect(state.accept(controlToken)).toBe(false);
    expect(state.accept(END)).toBe(false); // it ends the generation, and is no text
    expect(state.accept(0x61 + 2)).toBe(true);
  });

  test.each([
    ['start ::= "a"', "no rule root"],
    ["root ::= other", "line 1, column 10: the rule other is not defined"],
    ['root ::= "a" )', "expected a line end"],
    ['root ::= "a\n', "ends inside"],
    ['root ::= "\\q"', "unknown escape"],
    ['root = "a"', "expected ::="],
    ['root ::= "a"{3,1}', "swapped"],
    ["root ::= <[99999]>", "does not exist"],
    ["root ::= <nothing>", "not one token"],
    ['root ::= root "a" | "b"', "left recursion"],
    ['root ::= a\na ::= b? a "x" | "y"\nb ::= "z"', "left recursion"],
    ['root ::= "a" root', "no text matches"],
    ['root ::= "a"\nroot ::= "b"', "defined twice"],
    [`root ::= ${"(".repeat(300)}"a"${")".repeat(300)}`, "nested"],
  ])("%s is refused: %s", (gbnf, reason) => {
    expect(() => compile({ gbnf })).toThrow(reason);
  });
});
