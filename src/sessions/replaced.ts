// What was changed or deleted and backups still have as it was. It is written with the change itself, so that a process that is killed
// before the backups are changed leaves the next one the list. purge.ts reads it.

import type { Database } from "../platform/database.ts";

export interface Replaced {
  readonly item: "session" | "preset";
  /** Id of the session, or name of the preset. */
  readonly name: string;
}

export function noteReplaced(database: Database, item: Replaced["item"], name: string): void {
  database.run("INSERT OR IGNORE INTO replaced (item, name) VALUES (?, ?)", item, name);
}

export function listReplaced(database: Database): Replaced[] {
  const rows = database.all("SELECT item, name FROM replaced");
  return rows.map((row) => ({ ...row }) as unknown as Replaced);
}

export function endReplaced(database: Database, { item, name }: Replaced): void {
  database.run("DELETE FROM replaced WHERE item = ? AND name = ?", item, name);
}
