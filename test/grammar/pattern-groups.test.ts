// Where groups of a regular expression stand: as the platform's own says, within bounds where that would take for ever.

import { expect, test } from "vitest";
import { firstGroupStart } from "../../src/grammar/regex/pattern-groups.ts";
import { PatternTrigger } from "../../src/grammar/regex/pattern-trigger.ts";

const texts = [
  "",
  "aaa",
  "xabcabc",
  "aXbX",
  "<|start|>assistant to=f",
  "<|start|>assistant<|channel|>commentary to=f",
  ">>>all\nhi>>>f\n{",
  "déjà (vu) 12",
];
const patterns = [
  "a",
  "(a)",
  "a*(b?)",
  "a*?(a+)",
  "(x)?(a)b",
  "(?:a|b)+(c)",
  "(?<name>b)c",
  "(a|ab)(c|bcd)?",
  "(?:(a)|b)*c",
  "^x(.*)c$",
  "(X)$",
  "a(?=b)(bc)",
  "<\\|start\\|>assistant(\\s+to)",
  "<\\|start\\|>assistant(<\\|channel\\|>(?:commentary|analysis)\\s+to)",
  ">>>(?!all)",
  "(\\d+)",
  "[^(]*\\((\\w+)\\)",
  "(?:a{1,2}){2}(b?)",
];

/** As llama.cpp takes it from a match. */
function asPlatform(pattern: string, text: string): number | undefined {
  const match = new RegExp(pattern, "du").exec(text);
  if (match === null) return undefined;
  const group = match.indices!.slice(1).find((range) => range && range[1] > range[0]);
  return [...text.slice(0, (group ?? match.indices![0]!)[0])].length;
}

test.each(patterns)("%s", (pattern) => {
  for (const text of texts) {
    expect([text, firstGroupStart(pattern, text)]).toEqual([text, asPlatform(pattern, text)]);
  }
});

test("what takes too many steps is an error", () => {
  expect(() => firstGroupStart("^(?:(?:a|a)+)+b", `${"a".repeat(60)}c`)).toThrow("too many steps");
  expect(() => firstGroupStart("^(?:ab)*c", "ab".repeat(100_000))).toThrow("too many steps");
});

test("a trigger follows the text piece by piece, half characters included", () => {
  const found = (pattern: string, pieces: readonly Uint8Array[]): string[] => {
    const trigger = new PatternTrigger(pattern);
    return pieces.map((piece) => {
      const rest = trigger.push(piece);
      return rest === undefined ? "-" : new TextDecoder().decode(rest);
    });
  };
  const bytes = new TextEncoder().encode("é<|start|>assistant to=f");
  const pieces = [bytes.subarray(0, 1), bytes.subarray(1, 9), bytes.subarray(9)];
  expect(found("assistant(\\s+to)", pieces)).toEqual(["-", "-", " to=f"]);
  expect(found("^é.*to$", pieces)).toEqual(["-", "-", "-"]);
  expect(found("(?:é)(<)", pieces)[1]).toBe("<|start");
});
