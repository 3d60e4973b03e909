// The first comment of every test file, held against what it is for: it says in a sentence what the file holds, and against what.

import { expect, test } from "vitest";
import { sourceFiles } from "./scan.ts";

/** Words of a comparison: with something else, or with what must (not) happen. A line "Held against: ..." is always one. */
const comparison =
  /\b(against|same|equals?|reference|by hand|made[ -]up|refuse[sd]?|errors?|never|nothing|every|whatever|agree|bits|fails?|compared|only|in turn|lost|stays?)\b|\bas (it|the|in|if|a|llama|Node|ggml|without|those|large|alone|well|users?|told|one)\b|\bno (longer|more|other)\b/i;

function headerOf(text: string): string {
  const lines = text.split("\n");
  const end = lines.findIndex((line) => !line.startsWith("//"));
  return lines
    .slice(0, end)
    .map((line) => line.slice(2).trim())
    .join(" ");
}

function lacks(text: string): string | undefined {
  const header = headerOf(text);
  if (header.split(" ").length < 5 || !/[.:)]$/.test(header)) return "no sentence";
  return comparison.test(header) ? undefined : "not against what";
}

test("every test file says what it holds against what", () => {
  const files = sourceFiles("test").filter(({ path }) => path.endsWith(".test.ts"));
  expect(files.length).toBeGreaterThan(500);
  expect(
    files.flatMap(({ path, text }) => {
      const reason = lacks(text);
      return reason ? [`${path}: ${reason}`] : [];
    }),
    'the first comment: one sentence, and "Held against: ..." where it does not say so itself',
  ).toEqual([]);
});

test("headers that say too little are found", () => {
  expect(lacks("// Blocks.\n")).toBe("no sentence");
  expect(lacks('import "x";\n')).toBe("no sentence");
  expect(lacks("// The blocks of a cache, by their size.\nx")).toBe("not against what");
  expect(
    lacks("// The blocks of a cache.\n// Held against: sizes written here.\nx"),
  ).toBeUndefined();
});
