// No regular expression over input of unknown size takes more than a number of steps for each letter of it: one that takes n * n is as
// fast in every test and stands still for minutes on a file of 20 MB. Steps are counted by a matcher of our own (regex-cost.ts), so
// this is the same on every machine. `npm run fuzz -- regexes` tries more strings.

import { describe, expect, test } from "vitest";
import { superLinear } from "../support/regex-cost.ts";
import { boundedInputs, regexLiterals } from "./regexes.ts";

const literals = regexLiterals();

test("expressions are ASCII: read with another charset, a page's script would not be the same, or none", () => {
  const others = literals.filter(({ regex }) => /[^\0-\x7f]/.test(String(regex)));
  expect(others.map(({ path, line }) => `${path}:${line}: write \\u`)).toEqual([]);
});
const found = literals.flatMap(({ path, line, regex }) => {
  const cost = superLinear(regex);
  return cost ? [{ path, says: `${path}:${line} ${regex} on ${shown(cost)}` }] : [];
});

function shown({ before, pump, after }: { before: string; pump: string; after: string }): string {
  return [before, pump, after].map((text) => JSON.stringify(text)).join(", ");
}

test("every regular expression is found, and can be read", () => {
  expect(literals.length).toBeGreaterThan(400);
  for (const folder of ["src/", "apps/web/src/"]) {
    expect(literals.some(({ path }) => path.startsWith(folder))).toBe(true);
  }
});

test("none is super-linear, unless its input is short", () => {
  const unbounded = found.filter(({ path }) => boundedInputs[path] === undefined);
  expect(
    unbounded.map(({ says }) => says).join("\n"),
    "write it without such a pattern (base/without-end.ts, split(), indexOf(), a sticky pattern), or bound its input and say how in regexes.ts",
  ).toBe("");
});

test("every exception is needed", () => {
  const paths = new Set(found.map(({ path }) => path));
  expect(Object.keys(boundedInputs).filter((path) => !paths.has(path))).toEqual([]);
});

describe("what is counted", () => {
  const bad = [
    /(a+)+b/,
    /^(a|aa)+$/,
    /\s+$/,
    /\s+$/g,
    /\S[^\n]*\n/,
    /^\s*(\d*)\s*x/,
    /^a*a*b/,
    /<!--.*?-->/gs,
    /"(?:\\.|[^"\\])*"/g,
    /(?=a+b)c/,
    /[^,]+,(?<=x)/,
    /\p{L}+\d/u,
    /\d{1,999}x/,
  ];
  test.each(bad)("%s is super-linear", (regex) => {
    expect(superLinear(regex)).toBeDefined();
  });

  const good = [
    /^\s+$/,
    /a+/g,
    /^\s*x/,
    /[^"]*"/y,
    /"url"\s*:/,
    /\s{1,20}$/,
    /^(?:a|b)*c/,
    /[\r\n]/,
    /^[^=]*=.*$/,
    /[[a-z]--[b]]/v,
    /\bx{2}\b/,
    /^(?<name>\w+)-\k<name>$/,
  ];
  test.each(good)("%s is linear", (regex) => {
    expect(superLinear(regex)).toBeUndefined();
  });
});
