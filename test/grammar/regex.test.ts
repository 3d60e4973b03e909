// Regular expressions against the ones of JavaScript, on texts that nearly match.

import { describe, expect, test } from "vitest";
import { taken } from "./support.ts";

const words = [
  "",
  "a",
  "b",
  "ab",
  "ba",
  "aab",
  "abc",
  "abcabc",
  "0",
  "12",
  "1-2",
  "é",
  "日本",
  "😀",
  "\n",
  "a b",
  "_",
];

const patterns = [
  "a*b",
  "(a|b)+c?",
  "[a-c]{2,3}",
  "[^a]*",
  ".",
  "\\w+",
  "\\d+-\\d+",
  "(?:ab|a)(?:c|bc)?",
  "(?=.*b)[ab]+",
  "(?!ab)[abc]+",
  "\\S+\\s\\S+",
  "[\\u00e0-\\u00ff]|\\p{Script=Han}+",
  "\\u{1F600}",
  "(a{2}|b){1,2}",
  "",
];

describe("regular expressions", () => {
  test.each(patterns)("%s matches what JavaScript's matches", (pattern) => {
    const expected = words.filter((word) => new RegExp(`^(?:${pattern})$`, "u").test(word));
    expect(taken({ regex: pattern }, words)).toEqual(expected);
  });

  test.each(["^a", "b$", "^ab$", "b", "^(a|b)", "(^a)|(c$)", "^(?!a)", "^.{2,3}$", "[^ab]"])(
    "a schema's pattern %s finds its match anywhere",
    (pattern) => {
      const expected = words.filter((word) => new RegExp(pattern, "u").test(word));
      const quoted = words.map((word) => JSON.stringify(word));
      const result = taken({ schema: { type: "string", pattern } }, quoted);
      expect(result.map((text) => JSON.parse(text) as string)).toEqual(expected);
    },
  );

  test.each([
    ["(a)\\1", "back reference"],
    ["\\bword", "word border"],
    ["(?<=a)b", "lookbehind"],
    ["a**", "repetition of a repetition"],
    ["(a", "without its )"],
    ["a{5,2}", "swapped"],
    ["[b-a]", "swapped"],
    ["a{200000}", "more than"],
  ])("%s is refused by name", (pattern, reason) => {
    expect(() => taken({ regex: pattern }, [])).toThrow(reason);
  });
});
