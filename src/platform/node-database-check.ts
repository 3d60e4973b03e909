// Checks a database file for damage. Tables are checked one by one, so that damage to derived data (an index, a
// virtual table's own tables) can be told from other damage. Indexes are rebuilt here, virtual tables by their owner;
// any other damage is an error. Rows with invalid values are left to their readers.

import type { DatabaseSync } from "node:sqlite";
import { StorageError } from "./database.ts";

/** Messages of integrity_check about single rows and indexes; all others are about pages. */
const aboutRows = /^(?:non-\w+ value in|NULL value in|CHECK constraint failed in|\w+ value in) /;
const aboutIndexes =
  /(?:missing from|wrong # of entries in|values differ from|non-unique entry in) index /;

export interface Checked {
  /** Damaged virtual tables. */
  readonly damaged: string[];
  /** The parts that were made again, in sentences. */
  readonly mended: string[];
}

/** Throws if anything is damaged that cannot be rebuilt. */
export function checkIntegrity(sqlite: DatabaseSync, path: string, writable: boolean): Checked {
  const tables = sqlite
    .prepare("SELECT name, sql LIKE 'CREATE VIRTUAL%' AS v FROM sqlite_schema WHERE type = 'table'")
    .all()
    .map((row) => ({ name: String(row.name), isVirtual: row.v === 1 }));
  const virtual = tables.filter(({ isVirtual }) => isVirtual).map(({ name }) => name);
  const plain = tables.filter(({ isVirtual }) => !isVirtual).map(({ name }) => name);
  const damaged = new Set<string>();
  const mended: string[] = [];
  // Checking a full-text index word by word takes ten times as long, so its own tables are checked instead.
  for (const name of ["sqlite_schema", ...plain]) {
    const owner = virtual.find((table) => name.startsWith(`${table}_`));
    if (owner !== undefined && damaged.has(owner)) continue;
    const found = problemsOf(sqlite, name);
    if (found.length === 0) continue;
    if (owner !== undefined) damaged.add(owner);
    else if (writable && repairIndexes(sqlite, name, found)) {
      mended.push(`"${path}": an index of the table ${name} was damaged and is made again`);
    } else {
      throw new StorageError("corrupt", `database: "${path}": table ${name}: ${found[0]}`);
    }
  }
  return { damaged: [...damaged], mended };
}

/** Without messages about single rows. Compares tables with their indexes, too: a row that its index lacks is not found. */
function problemsOf(sqlite: DatabaseSync, table: string): string[] {
  try {
    return sqlite
      .prepare(`PRAGMA integrity_check(${quoted(table)})`)
      .all()
      .map((row) => String(row.integrity_check).split("\n").pop()!)
      .filter((text) => text !== "ok" && !aboutRows.test(text));
  } catch (error) {
    if (isOfTheMachine(error as Error & { errcode?: number })) throw error;
    return [(error as Error).message];
  }
}

/** Busy, locked, out of memory, an I/O error, a full disk: these codes do not concern the file, which may be sound. */
const machineCodes: ReadonlySet<number> = new Set([5, 6, 7, 10, 13]);
/** An I/O error by its code, but it means that the file is shorter than it should be. */
const SHORT_READ = 522;

function isOfTheMachine({ errcode = 0 }: { errcode?: number }): boolean {
  return errcode !== SHORT_READ && machineCodes.has(errcode & 0xff);
}

function repairIndexes(sqlite: DatabaseSync, table: string, found: readonly string[]): boolean {
  if (!found.every((text) => aboutIndexes.test(text))) return false;
  sqlite.exec(`REINDEX ${quoted(table)}`);
  return problemsOf(sqlite, table).length === 0;
}

/**
 * Removes virtual tables and their own tables from the schema without reading any of their pages, then rewrites the
 * file without these pages. DROP TABLE would read pages that may be garbage.
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
