// Rows that were changed or deleted while backups still have the old ones, and the mark that the file itself may have remains: SQLite
// leaves copies of rows behind in pages that it divides, where no deletion finds them. The list is written with the change itself, so
// that a process that is killed before all of it is gone leaves it to the next one. purge.ts and search-index.ts read it.

import type { Database } from "../../src/platform/database.ts";

export interface Replaced {
  readonly item: "session" | "preset";
  /** Id of the session, or name of the preset. */
  readonly name: string;
}

export function noteReplaced(database: Database, item: Replaced["item"], name: string): void {
  database.run("INSERT OR IGNORE INTO replaced (item, name) VALUES (?, ?)", item, name);
  noteRemains(database);
}

export function noteRemains(database: Database): void {
  database.run("INSERT OR IGNORE INTO replaced (item, name) VALUES ('file', '')");
}

/** Rewrites the file from its rows, if it may have remains. Not inside a transaction. */
export function removeRemains(database: Database): void {
  if (!hasRemains(database)) return;
  database.exec("VACUUM");
  database.run("DELETE FROM replaced WHERE item = 'file'");
}

export function hasRemains(database: Database): boolean {
  return database.get("SELECT 1 FROM replaced WHERE item = 'file'") !== undefined;
}

export function listReplaced(database: Database): Replaced[] {
  const rows = database.all("SELECT item, name FROM replaced WHERE item <> 'file'");
  return rows.map((row) => ({ ...row }) as unknown as Replaced);
}

export function endReplaced(database: Database, { item, name }: Replaced): void {
  database.run("DELETE FROM replaced WHERE item = ? AND name = ?", item, name);
}
