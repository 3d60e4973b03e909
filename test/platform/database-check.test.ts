// What a check of a database file takes for damage: what SQLite says of the file, and not what the machine cannot do at the moment.
// Held against: errors of SQLite, made up here.

import type { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { checkIntegrity } from "../../src/platform/node-database-check.ts";

/** A database whose check fails with this code. */
function failing(errcode: number): DatabaseSync {
  const prepare = (sql: string) => ({
    all: () => {
      if (!sql.startsWith("PRAGMA integrity_check")) return [];
      throw Object.assign(new Error("no check"), { errcode });
    },
  });
  return { prepare } as unknown as DatabaseSync;
}

test.each([
  ["busy", 5],
  ["out of memory", 7],
  ["an I/O error", 10],
  ["an I/O error of a lock", 10 + (15 << 8)],
  ["a full disk", 13],
])("%s says nothing of the file", (_, errcode) => {
  expect(() => checkIntegrity(failing(errcode), "a.db", true)).toThrow(/^no check$/);
});

test.each([
  ["a damaged page", 11],
  ["no database", 26],
  ["a file that is too short", 522],
])("%s is damage", (_, errcode) => {
  const check = () => checkIntegrity(failing(errcode), "a.db", true);
  expect(check).toThrow(expect.objectContaining({ problem: "corrupt" }));
});
