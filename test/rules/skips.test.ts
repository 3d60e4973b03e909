// Tests that are skipped, held against CI's demand for a reason (test/tiers/tally.ts): the title is made with one, or the context is told it.

import { expect, test } from "vitest";
import { sourceFiles } from "./scan.ts";

const call =
  /(?:\.(?:skipIf|runIf)\((?:[^()]|\([^()]*\))*\)|\b(?:test|it|describe)\.skip)(?:\.each\([^)]*\))?\(\s*("[^"]*"|`[^`]*`|\w+)?/g;

/** A title that is text alone; "%s" stands for a title that has its reason. */
function silentIn(text: string): string[] {
  const titles = [...text.matchAll(call)].flatMap(([, title]) => title ?? []);
  return titles.filter((title) => /^["`]/.test(title) && !/\$\{|\[|^"%s"$/.test(title));
}

test("every test that is skipped says why", () => {
  const files = sourceFiles("test").filter(({ path }) => path.endsWith(".test.ts"));
  const others = files.filter(({ path }) => !path.startsWith("test/rules/"));
  expect(others.length).toBeGreaterThan(500);
  expect(
    others.flatMap(({ path, text }) => silentIn(text).map((title) => `${path}: ${title}`)),
    "add skippedFor() of test/support/skips.ts to the title",
  ).toEqual([]);
});

test("a silent one is found", () => {
  expect(silentIn('test.skipIf(!has("x"))("a title", () => {});')).toEqual(['"a title"']);
  expect(silentIn('test.skip(\n  "a title", () => {});')).toEqual(['"a title"']);
  expect(silentIn("test.skipIf(!has)(`a title$" + "{reason}`, () => {});")).toEqual([]);
  expect(silentIn("test.skipIf(!has)(title, () => {});")).toEqual([]);
});
