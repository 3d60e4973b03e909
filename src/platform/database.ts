// The interface of an embedded SQL database (SQLite's dialect), and the error that it throws.
//
// node-database.ts implements it in Node; a browser has none yet. The tables belong to the users of the database
// (src/sessions, src/batch).

import { SourceError } from "../base/errors.ts";

export type SqlValue = string | number | null;
export type SqlRow = Readonly<Record<string, SqlValue>>;

/** One open database. Calls are synchronous: each is short, and they take effect in order. */
export interface Database {
  /** Its path, for messages. */
  readonly place: string;
  /** false: it can be read but not written, because the disk or the file is read-only. */
  readonly writable: boolean;
  /** Virtual tables (full-text indexes) that were found damaged when it was opened; their owner can rebuild them. */
  readonly damaged: readonly string[];
  /** Several statements, without values. */
  exec(sql: string): void;
  /** One statement; returns how many rows it changed. Statements are prepared once and kept. */
  run(sql: string, ...values: SqlValue[]): number;
  get(sql: string, ...values: SqlValue[]): SqlRow | undefined;
  all(sql: string, ...values: SqlValue[]): SqlRow[];
  /** All of the work or none of it; it is on disk when this returns. A nested transaction is part of the outer one. */
  transaction<T>(work: () => T): T;
  /**
   * Removes virtual tables without reading them, because they may be damaged. Not inside a transaction; rewrites the
   * file.
   */
  forget(virtualTables: readonly string[]): void;
  close(): void;
}

export type StorageProblem =
  | "corrupt" // the file is damaged; a copy was made
  | "full" // no room on the disk
  | "read-only" // the disk or the file cannot be written
  | "busy" // another process has it open
  | "newer" // a newer Lantern made it
  | "failed"; // it cannot be opened, or the disk does not answer

/** Something could not be saved or read back. `problem` is its kind; the message has the details. */
export class StorageError extends SourceError {
  readonly problem: StorageProblem;

  constructor(problem: StorageProblem, message: string, options?: ErrorOptions) {
    super(message, options);
    this.problem = problem;
  }
}

/**
 * Brings a file to the newest version; refuses one that is newer than this program. `steps`: step i takes a file from
 * version i to i + 1, in one transaction. `PRAGMA user_version` counts the steps that a file has been through. A released
 * step is never edited: add another. `what`: whose tables these are, for messages.
 */
export function migrateDatabase(database: Database, what: string, steps: readonly string[]): void {
  const version = Number(database.get("PRAGMA user_version")?.user_version ?? 0);
  if (version > steps.length) {
    throw new StorageError(
      "newer",
      `${what}: "${database.place}" has version ${version}, but this Lantern reads versions up to ${steps.length}. Use the newer Lantern that made the file, or name another file`,
    );
  }
  if (version === steps.length) return;
  if (!database.writable) {
    throw new StorageError(
      "read-only",
      `${what}: "${database.place}" has version ${version} and must be updated to version ${steps.length}, but the file is read-only`,
    );
  }
  for (let step = version; step < steps.length; step++) {
    database.transaction(() => {
      database.exec(steps[step]!);
      database.exec(`PRAGMA user_version = ${step + 1}`);
    });
  }
}
