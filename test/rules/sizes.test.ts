// Files stay small enough to read in one sitting, and say at their top what they are.
//
// 800 lines is a wall, 400 the aim: files above it are printed, not failed. Functions are left to reviewers.

import { expect, test } from "vitest";
import { programFolders, sourceFiles } from "./scan.ts";

const aim = 400;
const limit = 800;
/** Shorter than this, a header says no more than the file's name does. */
const shortestHeader = 30;

/** Files that may be longer, each with its reason. */
const exempt: Readonly<Record<string, string>> = {};

const files = sourceFiles(...programFolders, "test", "scripts", "bench").map(({ path, text }) => ({
  path,
  lines: text.trimEnd().split("\n").length,
  header: headerOf(text),
}));

test(`no file has more than ${limit} lines`, () => {
  const long = files.filter(({ path, lines }) => lines > limit && !(path in exempt));
  expect(
    long.map(({ path, lines }) => `${path}: ${lines} lines`),
    "split it, or give it a line with a reason in test/rules/sizes.test.ts",
  ).toEqual([]);
  const aboveAim = files.filter(({ lines }) => lines > aim).sort((a, b) => b.lines - a.lines);
  for (const { path, lines } of aboveAim) console.log(`${path}: ${lines} lines, aim ${aim}`);
});

test("every exemption is still needed", () => {
  const needed = files.filter(({ lines }) => lines > limit).map(({ path }) => path);
  expect(Object.keys(exempt).filter((path) => !needed.includes(path))).toEqual([]);
});

test("every source file begins with a comment that says what it is", () => {
  const silent = files.filter(
    ({ path, header }) => path.startsWith("src/") && header.join(" ").length < shortestHeader,
  );
  expect(
    silent.map(({ path }) => path),
    "say what the file is, what it is not, and where it sits",
  ).toEqual([]);
});

/** The lines of // or of one block comment at the top, without their marks. */
function headerOf(text: string): string[] {
  const block = /^\/\*([\s\S]*?)\*\//.exec(text)?.[1];
  const lines = block?.split("\n") ?? /^(?:\/\/.*\n)*/.exec(text)![0].split("\n");
  return lines.map((line) => line.replace(/^[/* ]+/, "").trim()).filter((line) => line !== "");
}
