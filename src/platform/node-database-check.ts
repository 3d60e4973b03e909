// Is a database file whole? Tables are checked one by one, so that damage to what is derived (an index, a virtual table's own
// tables) can be told from damage to what is not: indexes are made anew here, virtual tables by whoever made them, and the rest
// is an error. Rows with values that their column should not have are left to who reads them.

import type { DatabaseSync } from "node:sqlite";
import { StorageError } from "./database.ts";

/** What quick_check says of single rows and of indexes; everything else is about pages. */
const aboutRows = /^(?:non-\w+ value in|NULL value in|CHECK constraint failed in|\w+ value in) /;
const aboutIndexes = /(?:missing from|wrong # of entries in) index /;

/** Returns the virtual tables that are damaged; throws where something is that cannot be derived. */
export function checkIntegrity(sqlite: DatabaseSync, path: string, writable: boolean): string[] {
  const tables = sqlite
    .prepare("SELECT name, sql LIKE 'CREATE VIRTUAL%' AS v FROM sqlite_schema WHERE type = 'table'")
    .all()
    .map((row) => ({ name: String(row.name), isVirtual: row.v === 1 }));
  const virtual = tables.filter(({ isVirtual }) => isVirtual).map(({ name }) => name);
  const plain = tables.filter(({ isVirtual }) => !isVirtual).map(({ name }) => name);
  const damaged = new Set<string>();
  // An index of words would be read word by word, which takes ten times as long: its tables are checked instead.
  for (const name of ["sqlite_schema", ...plain]) {
    const owner = virtual.find((table) => name.startsWith(`${table}_`));
    if (owner !== undefined && damaged.has(owner)) continue;
    const found = problemsOf(sqlite, name);
    if (found.length === 0) continue;
    if (owner !== undefined) damaged.add(owner);
    else if (!writable || !repairIndexes(sqlite, name, found)) {
      throw new StorageError("corrupt", `database: "${path}": table ${name}: ${found[0]}`);
    }
  }
  return [...damaged];
}

/** Without those of single rows. */
function problemsOf(sqlite: DatabaseSync, table: string): string[] {
  try {
    return sqlite
      .prepare(`PRAGMA quick_check(${quoted(table)})`)
      .all()
      .map((row) => String(row.quick_check).split("\n").pop()!)
      .filter((text) => text !== "ok" && !aboutRows.test(text));
  } catch (error) {
    return [(error as Error).message];
  }
}

function repairIndexes(sqlite: DatabaseSync, table: string, found: readonly string[]): boolean {
  if (!found.every((text) => aboutIndexes.test(text))) return false;
  sqlite.exec(`REINDEX ${quoted(table)}`);
  return problemsOf(sqlite, table).length === 0;
}

/**
 * Takes virtual tables and their own tables out of the schema, without reading a page of theirs, and writes the file anew
 * without their pages: DROP TABLE would walk through pages that may be garbage.
 */
export function forgetTables(sqlite: DatabaseSync, names: readonly string[]): void {
  const defensive = (on: boolean): void => (sqlite as Partial<DatabaseSync>).enableDefensive?.(on); // Node 24 and newer
  defensive(false);
  try {
    sqlite.exec("PRAGMA writable_schema = ON");
    for (const name of names) {
      sqlite
        .prepare("DELETE FROM sqlite_schema WHERE tbl_name = ? OR substr(tbl_name, 1, ?) = ?")
        .run(name, name.length + 1, `${name}_`);
    }
    sqlite.exec("PRAGMA writable_schema = RESET");
  } finally {
    defensive(true);
  }
  sqlite.exec("VACUUM");
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
