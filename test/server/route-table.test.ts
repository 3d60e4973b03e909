// All routes come from the table: whatever else of routes/ and protocols/ is imported is imported there, and every file of them is a
// family of the table, or part of one.

import { expect, test } from "vitest";
import { importsOf, programFolders, resolveImport, sourceFiles, tokenize } from "../rules/scan.ts";

const folders = ["apps/server/routes/", "apps/server/protocols/"];
const isRoutes = (path: string): boolean => folders.some((folder) => path.startsWith(folder));
const table = `${folders[0]}table.ts`;
const imports = sourceFiles(...programFolders).map(({ path, text }) => ({
  path,
  of: importsOf(tokenize(text))
    .filter(({ typesOnly }) => !typesOnly)
    .map(({ from }) => resolveImport(path, from))
    .filter((imported) => imported !== undefined && isRoutes(imported) && imported !== table),
}));

test("routes are taken from the table alone", () => {
  const outside = imports.filter(({ path, of }) => !isRoutes(path) && of.length > 0);
  expect(outside.map(({ path }) => path)).toEqual([]);
});

test("every file of routes/ and protocols/ is reached from the table", () => {
  const reached = new Set([table]);
  for (const path of reached) {
    for (const imported of imports.find((each) => each.path === path)!.of) reached.add(imported!);
  }
  const files = sourceFiles("apps/server/routes", "apps/server/protocols").map(({ path }) => path);
  expect(files.filter((path) => !reached.has(path))).toEqual([]);
});
