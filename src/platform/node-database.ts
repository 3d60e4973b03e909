// A database file in Node, with node:sqlite. It knows nothing about its contents.
//
// Guarantees: a transaction that returned survives `kill -9` and a power cut (WAL with synchronous=FULL); deleted data
// is overwritten (secure_delete); one process and one user at a time (mode 0600); a damaged file is copied and
// reported, never silently repaired or replaced. SQLite's error codes become StorageErrors here.

import { copyFileSync, existsSync, statSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { type Database, type SqlRow, type SqlValue, StorageError } from "./database.ts";
import { quietBuiltin, runtimeName } from "./node-builtin.ts";
import { checkIntegrity, forgetTables } from "./node-database-check.ts";
import { dataFolder, type Environment } from "./node-folders.ts";
import { homeFolder, pathReasonOf } from "./node-path-errors.ts";
import { makePrivateFile, makePrivateFolder, tightenFile } from "./node-private.ts";

export interface NodeDatabaseOptions {
  /** How long to wait for another process that has it open. */
  busyMs?: number;
  /** Open for reading only, even if it could be written. */
  readOnly?: boolean;
}

/** The default file for conversations: in the platform's data folder, or in LANTERN_DATA. */
export function defaultDatabaseFile(name: string, env: Environment = process.env): string {
  return join(dataFolder(env, process.platform, homeFolder()), name);
}

/** Opens or creates the file. An existing file that cannot be written is opened for reading. */
export function openNodeDatabase(file: string, options: NodeDatabaseOptions = {}): Database {
  const path = resolve(file);
  if (options.readOnly) return openReadOnly(path);
  try {
    makePrivateFolder(dirname(path));
    return openWritable(path, options.busyMs ?? 2000);
  } catch (error) {
    const known = toStorageError(error, path, "open");
    if (known.problem === "corrupt") throw corrupt(path, known);
    const readable = known.problem === "read-only" || known.problem === "failed";
    if (!readable || !existsSync(path)) throw known;
    try {
      return openReadOnly(path);
    } catch {
      throw known;
    }
  }
}

function openWritable(path: string, busyMs: number): Database {
  makePrivateFile(path); // SQLite gives the WAL file the same mode
  for (const suffix of ["-wal", "-shm", "-journal"]) tightenFile(path + suffix);
  const sqlite = openSqlite(path, { timeout: busyMs });
  try {
    // Exclusive: two servers on one file would each take the other's running answers for interrupted ones.
    sqlite.exec("PRAGMA locking_mode = EXCLUSIVE");
    sqlite.exec("PRAGMA journal_mode = WAL");
    sqlite.exec("PRAGMA synchronous = FULL");
    sqlite.exec("PRAGMA secure_delete = ON");
    setCommon(sqlite);
    sqlite.exec("BEGIN IMMEDIATE; COMMIT"); // takes the lock now, not at the first write
    return new NodeDatabase(sqlite, path, true, checkIntegrity(sqlite, path, true));
  } catch (error) {
    sqlite.close();
    throw error;
  }
}

/** Without a lock or a WAL file: a read-only folder can hold neither. */
function openReadOnly(path: string): Database {
  const url = pathToFileURL(path);
  url.searchParams.set("immutable", "1");
  const sqlite = openSqlite(url, { readOnly: true });
  try {
    setCommon(sqlite);
    return new NodeDatabase(sqlite, path, false, checkIntegrity(sqlite, path, false));
  } catch (error) {
    sqlite.close();
    throw toStorageError(error, path, "open");
  }
}

/** Loaded when a file is opened: not every runtime has the module, and few commands need it. */
function openSqlite(...args: ConstructorParameters<typeof DatabaseSync>): DatabaseSync {
  const module = quietBuiltin("node:sqlite", "SQLite ") as typeof import("node:sqlite") | undefined;
  if (module) return new module.DatabaseSync(...args);
  throw new StorageError(
    "failed",
    `database: ${runtimeName()} has no node:sqlite; use Node.js 22.13 or newer`,
  );
}

function setCommon(sqlite: DatabaseSync): void {
  sqlite.exec("PRAGMA foreign_keys = ON");
  sqlite.exec("PRAGMA trusted_schema = OFF"); // the file may come from anywhere
  sqlite.exec("PRAGMA cell_size_check = ON");
  (sqlite as Partial<DatabaseSync>).enableDefensive?.(true); // Node 24 and newer
}

class NodeDatabase implements Database {
  readonly place: string;
  readonly writable: boolean;
  readonly damaged: readonly string[];
  readonly #sqlite: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  #depth = 0;

  constructor(sqlite: DatabaseSync, place: string, writable: boolean, damaged: readonly string[]) {
    this.#sqlite = sqlite;
    this.place = place;
    this.writable = writable;
    this.damaged = damaged;
  }

  exec(sql: string): void {
    this.#guard("write", () => this.#sqlite.exec(sql));
  }

  run(sql: string, ...values: SqlValue[]): number {
    return this.#guard("write", () => Number(this.#prepared(sql).run(...values).changes));
  }

  get(sql: string, ...values: SqlValue[]): SqlRow | undefined {
    return this.#guard("read", () => this.#prepared(sql).get(...values) as SqlRow | undefined);
  }

  all(sql: string, ...values: SqlValue[]): SqlRow[] {
    return this.#guard("read", () => this.#prepared(sql).all(...values) as SqlRow[]);
  }

  transaction<T>(work: () => T): T {
    if (this.#depth > 0) return work();
    this.exec("BEGIN IMMEDIATE");
    this.#depth++;
    try {
      const result = work();
      this.exec("COMMIT");
      return result;
    } catch (error) {
      if (this.#sqlite.isTransaction) this.#sqlite.exec("ROLLBACK");
      throw error;
    } finally {
      this.#depth--;
    }
  }

  forget(virtualTables: readonly string[]): void {
    this.#statements.clear();
    this.#guard("write", () => forgetTables(this.#sqlite, virtualTables));
  }

  close(): void {
    this.#statements.clear();
    if (this.#sqlite.isOpen) this.#sqlite.close();
  }

  #prepared(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (!statement) {
      statement = this.#sqlite.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  #guard<T>(what: "read" | "write", work: () => T): T {
    try {
      return work();
    } catch (error) {
      if (!isSqliteError(error) || !(primaryCode(error) in problems)) throw error; // a bug of ours
      throw toStorageError(error, this.place, what);
    }
  }
}

interface SqliteError extends Error {
  errcode: number;
  errstr: string;
}

/** SQLite's primary result codes that are about the machine, not about our statements. */
const problems: Readonly<Record<number, { problem: StorageError["problem"]; says: string }>> = {
  5: {
    problem: "busy",
    says: "another process has it open. Stop the other Lantern, or name another file",
  },
  6: { problem: "busy", says: "another connection has it locked. Try again" },
  8: { problem: "read-only", says: "the file or its disk is read-only. Nothing can be saved" },
  10: { problem: "failed", says: "the disk did not answer (input/output error). Check the disk" },
  11: { problem: "corrupt", says: "the file is damaged" },
  13: { problem: "full", says: "the disk is full. Free some space; what was saved is intact" },
  14: {
    problem: "failed",
    says: "the file cannot be opened. Check that the folder can be written",
  },
  26: { problem: "corrupt", says: "the file is not a database" },
};

/** The low byte of an extended code is the primary one. */
function primaryCode(error: SqliteError): number {
  return error.errcode & 0xff;
}

function isSqliteError(error: unknown): error is SqliteError {
  return error instanceof Error && typeof (error as Partial<SqliteError>).errcode === "number";
}

function toStorageError(error: unknown, path: string, what: string): StorageError {
  if (error instanceof StorageError) return error;
  const options = { cause: error };
  if (isSqliteError(error)) {
    const known = problems[primaryCode(error)];
    const says = known?.says ?? `${error.errstr} (SQLite error ${error.errcode})`;
    return new StorageError(
      known?.problem ?? "failed",
      `database: cannot ${what} "${path}": ${says}`,
      options,
    );
  }
  const { code } = error as NodeJS.ErrnoException;
  const problem =
    code === "ENOSPC" ? "full" : code === "EROFS" || code === "EACCES" ? "read-only" : "failed";
  return new StorageError(
    problem,
    `database: cannot ${what} "${path}": ${pathReasonOf(error)}`,
    options,
  );
}

/** Keeps a copy of a damaged file and its WAL, once per state of the file, and says where. */
function corrupt(path: string, reason: StorageError): StorageError {
  const when = new Date(statSync(path).mtimeMs).toISOString().replaceAll(/[:.]/g, "-");
  const copy = join(dirname(path), `${basename(path)}.damaged-${when}`);
  let kept = `A copy is at "${copy}".`;
  try {
    for (const suffix of ["", "-wal"]) {
      if (existsSync(path + suffix) && !existsSync(copy + suffix)) {
        copyFileSync(path + suffix, copy + suffix);
      }
    }
  } catch (error) {
    kept = `A copy could not be made: ${pathReasonOf(error)}.`;
  }
  return new StorageError(
    "corrupt",
    `${reason.message}. ${kept} Move the file away to start with an empty one, or try "sqlite3 FILE .recover" on the copy`,
    { cause: reason },
  );
}
