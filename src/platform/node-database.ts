// A database file in Node, with node:sqlite. It knows nothing about its contents.
//
// Guarantees: a transaction that returned survives `kill -9` and a power cut (WAL with synchronous=FULL); deleted data is
// overwritten (secure_delete); one process and one user at a time (mode 0600); a damaged file is copied and reported, never silently
// repaired or replaced; data that SQLite drops silently (a damaged log, a missing one, an emptied file) is found before SQLite
// changes a file (node-database-look.ts). A file that cannot be written is read, with its log.

import { closeSync, existsSync, openSync, readSync, rmSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { crc32 } from "node:zlib";
import {
  type Database,
  type SchemaItem,
  type SealedTable,
  type SqlRow,
  type SqlValue,
  StorageError,
  sumOf,
} from "./database.ts";
import { quietBuiltin, runtimeName } from "./node-builtin.ts";
import { checkIntegrity, forgetTables } from "./node-database-check.ts";
import { privateCopy } from "./node-database-copies.ts";
import { isOfStorage, toStorageError } from "./node-database-errors.ts";
import { corrupt, type Looker, lookAt } from "./node-database-look.ts";
import { dataFolder, type Environment } from "./node-folders.ts";
import { forgetHolder, heldBy, noteHolder } from "./node-holder.ts";
import { homeFolder, pathReasonOf } from "./node-path-errors.ts";
import { makePrivateFile, makePrivateFolder, tightenFile } from "./node-private.ts";
import { SavesWriter } from "./node-saves.ts";
import { WalEnd } from "./node-wal.ts";

export interface NodeDatabaseOptions {
  /** The time to wait for another process that has it open. */
  busyMs?: number;
  /** Open for reading only, even if it could be written. */
  readOnly?: boolean;
  /** Why only for reading. */
  why?: StorageError;
  /** The address of this process: other processes that find the file in use are told. */
  address?: string;
  /** Further advice if the file is in use: "name another file". */
  otherwise?: string;
}

/** The default file for conversations: in the platform's data folder, or in LANTERN_DATA. */
export function defaultDatabaseFile(name: string, env: Environment = process.env): string {
  return join(dataFolder(env, process.platform, homeFolder()), name);
}

/** Opens or creates the file. An existing file that cannot be written is opened for reading. */
export function openNodeDatabase(file: string, options: NodeDatabaseOptions = {}): Database {
  const path = resolve(file);
  if (options.readOnly) return openReadOnly(path, options.why);
  try {
    makePrivateFolder(dirname(path));
    return openWritable(path, options);
  } catch (error) {
    const known = toStorageError(error, path, "open");
    if (known.problem === "busy") throw inUse(path, known, options);
    const readable = ["read-only", "full", "failed"].includes(known.problem);
    if (!readable || !existsSync(path)) throw known;
    try {
      return openReadOnly(path, known);
    } catch (reading) {
      throw reading instanceof StorageError && reading.problem === "corrupt" ? reading : known;
    }
  }
}

function inUse(
  path: string,
  cause: StorageError,
  { otherwise = "name another file" }: NodeDatabaseOptions,
): StorageError {
  const message = `database: "${path}" is in use by ${heldBy(path)}, or ${otherwise}`;
  return new StorageError("busy", message, { cause });
}

function openWritable(path: string, { busyMs = 2000, address }: NodeDatabaseOptions): Database {
  const { findings } = orCorrupt(path, () => lookAt(path, looker(path, true, busyMs)));
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
    if (address !== undefined) noteHolder(path, address);
    const { damaged, mended } = orCorrupt(path, () => checkIntegrity(sqlite, path, true));
    return new NodeDatabase(sqlite, path, {
      writable: true,
      damaged,
      findings: [...findings, ...mended],
      problem: undefined,
      ...(address !== undefined && { beforeClose: () => forgetHolder(path) }),
    });
  } catch (error) {
    // Copied before SQLite puts the log into the file, as it does at its end.
    const known = isOfStorage(error)
      ? orCorruptError(path, toStorageError(error, path, "open"))
      : error;
    sqlite.close();
    throw known;
  }
}

function looker(path: string, mayWrite: boolean, busyMs: number): Looker {
  const contents = (view: View, isChecked: boolean) => {
    try {
      if (isChecked) checkIntegrity(view.sqlite, path, false);
      return { saves: savesOf(view.sqlite) };
    } catch (error) {
      throw toStorageError(error, path, "open");
    } finally {
      view.sqlite.close();
    }
  };
  return {
    mayWrite,
    checkUnused: () => mayWrite && checkUnused(path, busyMs),
    read: (file) => contents(viewOf(file), false),
    check: (file) => contents(viewWithLog(file), true),
  };
}

/** Throws if another process has the lock. It changes no file, unlike a connection that may write. */
export function checkUnused(path: string, busyMs: number): void {
  const hadIndex = existsSync(`${path}-shm`);
  const sqlite = openSqlite(path, { readOnly: true, timeout: busyMs });
  try {
    sqlite.prepare("SELECT 1 FROM sqlite_schema").get();
  } catch (error) {
    const known = toStorageError(error, path, "open");
    if (known.problem === "busy") throw known;
  } finally {
    sqlite.close();
    if (!hadIndex) rmSync(`${path}-shm`, { force: true });
  }
}

/**
 * Without a lock or a WAL file: a read-only folder can hold neither. The contents of a log are read from a private copy of both
 * files.
 */
function openReadOnly(path: string, why?: StorageError): Database {
  const problem =
    why ?? new StorageError("read-only", `database: "${path}" was opened for reading only`);
  const look = lookAt(path, looker(path, false, 0));
  const findings = [...look.findings];
  let view: View;
  try {
    view = look.hasLog ? viewOfCopy(path) : viewOf(path);
  } catch (error) {
    const known = toStorageError(error, path, "open");
    if (!look.hasLog || known.problem === "corrupt") throw known;
    view = viewOf(path);
    findings.push(
      `"${path}": its log "${path}-wal" has what was saved last, and cannot be read here (${pathReasonOf(error)}): that is not shown`,
    );
  }
  try {
    const { damaged } = checkIntegrity(view.sqlite, path, false);
    return new NodeDatabase(view.sqlite, path, {
      ...{ writable: false, damaged, findings, problem },
      ...(view.done && { done: view.done }),
    });
  } catch (error) {
    view.sqlite.close();
    view.done?.();
    throw toStorageError(error, path, "open");
  }
}

interface View {
  readonly sqlite: DatabaseSync;
  /** Removes the copy. */
  readonly done?: () => void;
}

function viewOf(path: string): View {
  const url = pathToFileURL(path);
  url.searchParams.set("immutable", "1");
  const sqlite = openSqlite(url, { readOnly: true });
  try {
    setCommon(sqlite);
    return { sqlite };
  } catch (error) {
    sqlite.close();
    throw error;
  }
}

/** A view of a private copy, which is gone with this process if the system lets an open file be removed. */
function viewOfCopy(path: string): View {
  const { file, remove } = privateCopy(path);
  try {
    const { sqlite } = viewWithLog(file);
    sqlite.exec("PRAGMA query_only = ON");
    if (process.platform !== "win32") remove();
    return { sqlite, done: remove };
  } catch (error) {
    remove();
    throw error;
  }
}

/** Puts the log into the file. */
function viewWithLog(file: string): View {
  const sqlite = openSqlite(file);
  try {
    sqlite.exec("PRAGMA locking_mode = EXCLUSIVE");
    setCommon(sqlite);
    sqlite.exec("PRAGMA journal_mode = MEMORY");
    return { sqlite };
  } catch (error) {
    sqlite.close();
    throw error;
  }
}

/** The database's own count of its transactions. undefined: it has none yet. */
function savesOf(sqlite: DatabaseSync): { id: string; count: number } | undefined {
  const has = sqlite.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'saves'").get();
  const row = has && sqlite.prepare("SELECT id, count FROM saves").get();
  return row && { id: String(row.id), count: Number(row.count) };
}

function orStorageError<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw toStorageError(error, path, "open");
  }
}

function orCorrupt<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw orCorruptError(path, toStorageError(error, path, "open"));
  }
}

const orCorruptError = (path: string, error: StorageError): StorageError =>
  error.problem === "corrupt" ? corrupt(path, error) : error;

/** Loaded when a file is opened: not every runtime has the module, and few commands need it. */
export function openSqlite(...args: ConstructorParameters<typeof DatabaseSync>): DatabaseSync {
  const module = quietBuiltin("node:sqlite", "SQLite ") as typeof import("node:sqlite") | undefined;
  if (module) return new module.DatabaseSync(...args);
  throw new StorageError(
    "failed",
    `database: ${runtimeName()} has no node:sqlite; use Node.js 22.13 or newer`,
  );
}

function schemaMadeBy(steps: readonly string[]): SchemaItem[] {
  const empty = openSqlite(":memory:");
  try {
    setCommon(empty);
    for (const step of steps) empty.exec(step);
    const items = empty.prepare(
      `SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
       ORDER BY rowid`,
    );
    return items.all().map((row) => ({ ...row }) as unknown as SchemaItem);
  } finally {
    empty.close();
  }
}

export function setCommon(sqlite: DatabaseSync): void {
  sqlite.exec("PRAGMA foreign_keys = ON");
  sqlite.exec("PRAGMA trusted_schema = OFF"); // the file may come from anywhere
  sqlite.exec("PRAGMA cell_size_check = ON");
  sqlite.exec("PRAGMA temp_store = MEMORY"); // sorted data is text, too
  sqlite.function("row_sum", { varargs: true, deterministic: true }, rowSum);
  (sqlite as Partial<DatabaseSync>).enableDefensive?.(true); // Node 24 and newer
}

const encoder = new TextEncoder();

/** CRC-32 over values that SQL has made bytes, and their lengths. */
function rowSum(...values: unknown[]): number {
  let sum = 0;
  for (const value of values) {
    const bytes = value as Uint8Array | null;
    sum = crc32(encoder.encode(bytes === null ? "-" : `${bytes.length}:`), sum);
    if (bytes !== null) sum = crc32(bytes, sum);
  }
  return sum;
}

interface Facts {
  readonly writable: boolean;
  readonly damaged: readonly string[];
  readonly findings: readonly string[];
  readonly problem: StorageError | undefined;
  readonly beforeClose?: () => void;
  /** Called when it is closed. */
  readonly done?: () => void;
}

export class NodeDatabase implements Database {
  readonly place: string;
  readonly writable: boolean;
  readonly damaged: readonly string[];
  readonly findings: readonly string[];
  readonly problem: StorageError | undefined;
  #sqlite: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  #beforeClose: (() => void) | undefined;
  #done: (() => void) | undefined;
  #depth = 0;
  /** Once transactions are counted. */
  #saves: SavesWriter | undefined;
  #counted: { readonly id: string; count: number } | undefined;
  #log: number | undefined;
  readonly #walEnd = new WalEnd((into, at) => readSync(this.#log!, into, 0, into.length, at));

  constructor(sqlite: DatabaseSync, place: string, facts: Facts) {
    this.#sqlite = sqlite;
    this.place = place;
    this.writable = facts.writable;
    this.damaged = facts.damaged;
    this.findings = facts.findings;
    this.problem = facts.problem;
    this.#beforeClose = facts.beforeClose;
    this.#done = facts.done;
  }

  exec(sql: string): void {
    this.#guard("write", () => this.#sqlite.exec(sql));
  }

  run(sql: string, ...values: SqlValue[]): number {
    const work = () =>
      this.#guard("write", () => Number(this.#prepared(sql).run(...values).changes));
    return this.#saves && this.#depth === 0 ? this.transaction(work) : work();
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
      const before = this.#saves && this.#changes();
      const result = work();
      const hasChanged = this.#saves && this.#changes() !== before;
      if (hasChanged) this.run("UPDATE saves SET count = count + 1");
      this.exec("COMMIT");
      if (hasChanged) this.#note();
      return result;
    } catch (error) {
      if (this.#sqlite.isTransaction) this.#sqlite.exec("ROLLBACK");
      throw error;
    } finally {
      this.#depth--;
    }
  }

  #changes(): SqlValue {
    return this.get("SELECT total_changes() AS n")!.n!;
  }

  /** Notes beside the database the number of saves, and the end of the log. */
  #note(): void {
    const count = ++this.#counted!.count;
    this.#saves!.write({ id: this.#counted!.id, count, ...this.#end() });
  }

  #end(): { salts: string; end: number } {
    try {
      this.#log ??= openSync(`${this.place}-wal`, "r");
      return this.#walEnd.now();
    } catch {
      return { salts: "", end: 0 };
    }
  }

  forget(virtualTables: readonly string[]): void {
    this.#statements.clear();
    this.#guard("write", () => forgetTables(this.#sqlite, virtualTables));
  }

  privately(work: () => void): void {
    if (this.#done === undefined) {
      const view = orStorageError(this.place, () => viewOfCopy(this.place));
      this.#statements.clear();
      this.#sqlite.close();
      this.#sqlite = view.sqlite;
      this.#done = view.done;
    }
    this.#sqlite.exec("PRAGMA query_only = OFF");
    work();
    this.#sqlite.exec("PRAGMA query_only = ON");
  }

  madeBy(steps: readonly string[]): SchemaItem[] {
    return orStorageError(this.place, () => schemaMadeBy(steps));
  }

  guard(sealed: readonly SealedTable[]): void {
    if (this.#saves) return;
    // A function of this connection only: the file stays readable without it.
    for (const table of sealed) {
      const { name, key, columns } = table;
      const row = key.map((column) => `"${column}" = new."${column}"`).join(" AND ");
      const seal = `BEGIN UPDATE ${name} SET sum = ${sumOf(table, "new.")} WHERE ${row}; END`;
      const quoted = columns.map((column) => `"${column}"`).join(", ");
      this.exec(`CREATE TEMP TRIGGER seal_new_${name} AFTER INSERT ON main.${name} ${seal}`);
      this.exec(
        `CREATE TEMP TRIGGER seal_${name} AFTER UPDATE OF ${quoted} ON main.${name} ${seal}`,
      );
    }
    if (!this.get("SELECT 1 FROM saves")) {
      this.run("INSERT INTO saves (id, count) VALUES (?, 0)", crypto.randomUUID());
    }
    this.#counted = savesOf(this.#sqlite)!;
    this.#saves = new SavesWriter(this.place);
  }

  inMemory(): Database {
    const sqlite = openSqlite(":memory:");
    setCommon(sqlite);
    return new MemoryDatabase(sqlite, "memory", {
      ...{ writable: true, damaged: [], findings: [], problem: undefined },
    });
  }

  close(): void {
    this.#statements.clear();
    if (this.#log !== undefined) closeSync(this.#log);
    this.#log = undefined;
    this.#beforeClose?.();
    this.#beforeClose = undefined;
    if (this.#sqlite.isOpen) this.#sqlite.close();
    // SQLite has removed the log if all of it is in the file.
    const isLeft = statSync(`${this.place}-wal`, { throwIfNoEntry: false }) !== undefined;
    if (this.#counted && !isLeft) this.#saves?.write({ ...this.#counted, salts: "", end: 0 });
    this.#saves?.close();
    this.#saves = undefined;
    this.#done?.();
    this.#done = undefined;
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
      if (!isOfStorage(error)) throw error; // a bug of ours
      throw toStorageError(error, this.place, what);
    }
  }
}

/** No file beside it notes the number of saves. */
class MemoryDatabase extends NodeDatabase {
  override guard(): void {}
}
