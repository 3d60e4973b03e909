// Our own matcher for patterns from files: the same matches as the platform's RegExp gives, for published patterns on real
// texts and for random ones; and an end where RegExp finds none.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { AbortedError, ModelError } from "../../src/base/errors.ts";
import { makeNormalizer } from "../../src/tokenizers/json/normalizer.ts";
import { makePreTokenizer, runStages } from "../../src/tokenizers/json/pre-tokenizer.ts";
import { nativePattern, toRegExp, translateRegex } from "../../src/tokenizers/json/regex.ts";
import { Matcher } from "../../src/tokenizers/json/regex-match.ts";
import { compilePattern } from "../../src/tokenizers/json/regex-program.ts";
import { preTokenizers } from "../../src/tokenizers/pretokenize.ts";
import { Random } from "../support/random.ts";
import { describeShared, sharedPath } from "../support/shared.ts";
import { sampleTexts } from "./texts.ts";

/** A pattern of tokenizer.json for our matcher, known or not. */
function matcher(source: string): Matcher {
  return new Matcher(compilePattern(toRegExp(source).source), source);
}

function expectSame(source: string, texts: Iterable<string>): void {
  const ours = matcher(source);
  const theirs = nativePattern(toRegExp(source));
  for (const text of texts) expect(ours.matches(text)).toEqual(theirs.matches(text));
}

const published = [
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "\\p{N}{1,3}",
  "[一-龥぀-ゟ゠-ヿ]+",
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "\\b\\w++|(?>\\s+)|[^\\w\\s]",
  "(?<=\\w)-(?=\\w)|^\\s+|\\s+$|\\Z",
  "(?:\\d{1,3}(?=(?:\\d{3})*\\b))+",
];

describe("the same matches as RegExp's:", () => {
  test.each(published)("%s", (source) => {
    expectSame(source, ["", "a\ud83d\ude00\u0301b  \n\n x's 1234", ...sampleTexts(60)]);
  });

  test("the pre-tokenizers of GGUF files", () => {
    for (const { patterns } of preTokenizers) {
      for (const regex of patterns) {
        const ours = new Matcher(compilePattern(regex.source), regex.source);
        for (const text of sampleTexts(15)) {
          expect(ours.matches(text)).toEqual(nativePattern(regex).matches(text));
        }
      }
    }
  });

  test("random patterns on random texts", () => {
    const random = new Random(15);
    const pick = (items: readonly string[]): string => items[random.below(items.length)]!;
    const signs = ["", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?", "{1,}"];
    const atom = (depth: number): string => {
      if (depth === 0 || random.below(3) === 0) return pick(["a", "b", "[ab]", "[^a]", "😀", "c"]);
      const group = pick(["(?:", "(?:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"]);
      const inside = either(depth - 1);
      // Looking behind, RegExp's way to write (?>...) means something else.
      const isMixed = group.startsWith("(?<") && inside.includes("(?>");
      return isMixed ? "b" : `${group}${inside})`;
    };
    const list = (depth: number): string =>
      Array.from({ length: random.below(4) }, () => {
        const one = atom(depth);
        return /^\(\?<?[=!]/.test(one) ? one : one + pick(signs);
      }).join("") + pick(["", "", "", "$"]);
    const either = (depth: number): string =>
      Array.from({ length: 1 + random.below(3) }, () => list(depth)).join("|");
    let compared = 0;
    for (let i = 0; i < 1500; i++) {
      const source = either(3);
      let ours: Matcher;
      try {
        ours = matcher(source);
      } catch {
        continue; // too many repetitions of what may be empty: refused
      }
      const theirs = nativePattern(toRegExp(source));
      for (let j = 0; j < 4; j++) {
        const text = Array.from({ length: random.below(10) }, () =>
          pick(["a", "b", "😀", "c"]),
        ).join("");
        const expected = theirs.matches(text);
        // V8 looks for empty matches in the middle of a character, where the standard has none.
        if (expected.some((at) => /^[\udc00-\udfff]/.test(text.slice(at)))) continue;
        expect([source, text, ours.matches(text)]).toEqual([source, text, expected]);
        compared++;
      }
    }
    expect(compared).toBeGreaterThan(3000);
  });
});

describeShared("on real text", "corpora", () => {
  test.each(published)("%s", (source) => {
    const text = readFileSync(sharedPath("corpora/wikitext-2-raw-test.txt"), "utf8").slice(
      0,
      300_000,
    );
    expectSame(source, [text]);
  });
});

describe("patterns on which RegExp does not end:", () => {
  const letters = "a".repeat(20_000);

  test.each<[string, string]>([
    ["(a+)+$", `${letters}b`],
    ["(a|a)*b", letters],
    ["(a*)*b", letters],
    ["(a|aa)+$", `${letters}b`],
    ["(?:a+a+)+b", letters],
    ["(\\w+\\s?)*$", `${"word ".repeat(4000)}!`],
    ["^(([a-z])+.)+[A-Z]([a-z])+$", letters],
    ["(?=(a+)+$)b|a", `${"a".repeat(300)}b`],
  ])("%s", (source, text) => {
    const found = translateRegex(source).matches(text);
    expect(found.length).toBeGreaterThanOrEqual(0);
  });

  test("and where even that takes too long, an error that names it", () => {
    const source = "(?=(a+)+$)b|(?=.*c)x";
    const match = () => translateRegex(source).matches(letters);
    expect(match).toThrow(ModelError);
    expect(match).toThrow(
      /the pattern "\(\?=\(a\+\).*takes more than \d+ steps on a text of 20000/,
    );
  });

  test("a caller that has gone ends it", () => {
    const check = (): never => {
      throw new AbortedError("tokenizing");
    };
    expect(() => translateRegex("(a+)+$").matches(`${letters.repeat(9)}b`, check)).toThrow(
      AbortedError,
    );
  });

  test("Split, and Replace in normalizers", () => {
    const pattern = { Regex: "(a+)+$" };
    const { stages } = makePreTokenizer({ type: "Split", pattern, behavior: "Isolated" });
    const words: string[] = [];
    runStages(stages, `${letters}b${letters}`, true, (word) => words.push(word));
    expect(words).toEqual([`${letters}b`, letters]);
    const normalize = makeNormalizer({ type: "Replace", pattern, content: "x" });
    expect(normalize(`b${letters}`)).toBe("bx");
    expect(normalize(`${letters}b`)).toBe(`${letters}b`);
  });

  test("Strip, on spaces in the middle of a text", () => {
    const spaces = " ".repeat(200_000);
    const normalize = makeNormalizer({ type: "Strip", strip_left: true, strip_right: true });
    expect(normalize(`  a${spaces}b  `)).toBe(`a${spaces}b`);
  });
});

test("patterns that would take too much memory are refused", () => {
  expect(() => translateRegex("(?:a{1,100}){1,100}")).toThrow("too many repetitions");
  expect(() => translateRegex("a{1,99999}")).toThrow("too many repetitions");
  expect(() => translateRegex("a".repeat(30_000))).toThrow("expected at most 20000");
  expect(() => translateRegex(`${"(?:".repeat(99)}a${")".repeat(99)}`)).toThrow(
    "nested too deeply",
  );
});
