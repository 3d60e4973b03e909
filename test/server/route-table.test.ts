// All routes come from the table: whatever else of routes/ is imported is imported there, and every file of the folder is a
// family of the table, or part of one.

import { expect, test } from "vitest";
import { importsOf, resolveImport, sourceFiles, tokenize } from "../rules/scan.ts";

const folder = "src/server/routes/";
const table = `${folder}table.ts`;
const imports = sourceFiles("src").map(({ path, text }) => ({
  path,
  of: importsOf(tokenize(text))
    .filter(({ typesOnly }) => !typesOnly)
    .map(({ from }) => resolveImport(path, from))
    .filter((imported) => imported?.startsWith(folder) && imported !== table),
}));

test("routes are taken from the table alone", () => {
  const outside = imports.filter(({ path, of }) => !path.startsWith(folder) && of.length > 0);
  expect(outside.map(({ path }) => path)).toEqual([]);
});

test("every file of routes/ is reached from the table", () => {
  const reached = new Set([table]);
  for (const path of reached) {
    for (const imported of imports.find((each) => each.path === path)!.of) reached.add(imported!);
  }
  const files = sourceFiles("src/server/routes").map(({ path }) => path);
  expect(files.filter((path) => !reached.has(path))).toEqual([]);
});
