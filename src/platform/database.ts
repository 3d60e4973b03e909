// What Lantern asks of an embedded SQL database (SQLite's language), and the one error that comes out of it.
//
// This is the interface only: node-database.ts provides it in Node, and a browser has none yet. Who keeps what in a
// database, with which tables, is their business (src/sessions).

import { SourceError } from "../base/errors.ts";

export type SqlValue = string | number | null;
export type SqlRow = Readonly<Record<string, SqlValue>>;

/** One open database. Calls are synchronous: each is short, and its order is the order in the file. */
export interface Database {
  /** For people: a path. */
  readonly place: string;
  /** false: it can be read and nothing can be saved, because the disk or the file is read-only. */
  readonly writable: boolean;
  /** Virtual tables (indexes of words) that were found damaged when it was opened; whoever made them can make them anew. */
  readonly damaged: readonly string[];
  /** Several statements, without values. */
  exec(sql: string): void;
  /** One statement; returns how many rows it changed. Statements are prepared once and kept. */
  run(sql: string, ...values: SqlValue[]): number;
  get(sql: string, ...values: SqlValue[]): SqlRow | undefined;
  all(sql: string, ...values: SqlValue[]): SqlRow[];
  /** All of the work or none of it; when this returns, it is on disk. Inside another one, it is part of that one. */
  transaction<T>(work: () => T): T;
  /** Removes virtual tables without reading them: they may be damaged. Not inside a transaction; rewrites the file. */
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

/** Something could not be saved or read back. `problem` says what kind of thing, the message the rest. */
export class StorageError extends SourceError {
  readonly problem: StorageProblem;

  constructor(problem: StorageProblem, message: string, options?: ErrorOptions) {
    super(message, options);
    this.problem = problem;
  }
}
