// The interface of an embedded SQL database (SQLite's dialect), and the error that it throws.
//
// node-database.ts implements it in Node; a browser has none yet. The tables belong to the users of the database
// (apps/sessions, apps/batch).

import { SourceError } from "../base/errors.ts";

export type SqlValue = string | number | null;
export type SqlRow = Readonly<Record<string, SqlValue>>;

/** One open database. Calls are synchronous: each is short, and they take effect in order. */
export interface Database {
  /** Its path, for messages. */
  readonly place: string;
  /** false: it can be read but not written, because the disk or the file is read-only. */
  readonly writable: boolean;
  /** Why it cannot be written; undefined: it can, or reading was asked for. */
  readonly problem: StorageError | undefined;
  /** The defects of the files that were found when it was opened, in sentences. Damaged files were copied before. */
  readonly findings: readonly string[];
  /** Virtual tables (full-text indexes) that were found damaged when it was opened; their owner can rebuild them. */
  readonly damaged: readonly string[];
  /** Several statements, without values. */
  exec(sql: string): void;
  /** One statement; returns the number of changed rows. Statements are prepared once and kept. */
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
  /** Changes the database for this reader only, not the file: for a file that cannot be written and must be updated. */
  privately(work: () => void): void;
  /** The schema that these steps make in an empty database. */
  madeBy(steps: readonly string[]): SchemaItem[];
  /** From now on each transaction is counted, and rows of these tables get their checksum as they are written. */
  guard(sealed: readonly SealedTable[]): void;
  /** Another database, empty and in memory: none of it is ever on a disk. */
  inMemory(): Database;
  close(): void;
}

/** Backups of a database, which lie beside it. Each is a database of its own, without indexes of words, and is known by its time. */
export interface BackupFiles {
  /** When they were made; the newest first. */
  times(): number[];
  /** Begins an empty one, without a name yet. Another one that was begun is gone. */
  begin(kind: DatabaseKind): BackupDraft;
  /** Removes the draft of a backup that was never finished. */
  removeDraft(): void;
  /** Opens one for reading. Throws if it is damaged. */
  open(time: number): Database;
  /** Changes one in a transaction; the old contents are overwritten when this resolves. A damaged one is removed. */
  change(time: number, work: (backup: Database) => void): Promise<void>;
  /** Overwrites and removes one. */
  remove(time: number): Promise<void>;
  /** Gives the database and its log another name, which it returns. Throws if a process has it open. */
  moveAside(): string;
  /** Names of files beside the database with conversations that are never deleted: copies of damaged files. */
  otherCopies(): string[];
}

export interface BackupDraft {
  insert(table: string, row: SqlRow): void;
  /** It is on disk, under its name, when this resolves. */
  finish(time: number): Promise<void>;
  /** Removes it, unless it was finished. */
  abandon(): void;
}

/** A table, an index or a trigger. */
export interface SchemaItem {
  readonly type: string;
  readonly name: string;
  readonly sql: string;
}

/** The description of one kind of database file. */
export interface DatabaseKind {
  /** Whose tables these are, for messages. */
  readonly what: string;
  /** Four letters in the file's header (`PRAGMA application_id`). Files of older versions have none. */
  readonly letters: string;
  /**
   * Step i takes a file from version i to i + 1, in one transaction. `PRAGMA user_version` counts the steps that a file has
   * been through. A released step is never edited: add another.
   */
  readonly steps: readonly string[];
  /** Tables with a checksum of each row in the column `sum`; steps make the column. */
  readonly sealed: readonly string[];
}

export interface SealedTable {
  readonly name: string;
  /** Its primary key. */
  readonly key: readonly string[];
  /** All columns but `sum`. */
  readonly columns: readonly string[];
}

/** For a step: where a database counts its transactions (`Database.guard`). */
export const savesTable = "CREATE TABLE saves (id TEXT NOT NULL, count INTEGER NOT NULL) STRICT;";

export type StorageProblem =
  | "corrupt" // the file is damaged; a copy was made
  | "full" // no room on the disk
  | "read-only" // the disk or the file cannot be written
  | "busy" // another process has it open
  | "newer" // a newer Lantern made it
  | "foreign" // another program, or another part of Lantern, made it
  | "failed"; // it cannot be opened, or the disk does not answer

/** Something could not be saved or read back. `problem` is its kind; the message has the details. */
export class StorageError extends SourceError {
  override name: string = "StorageError";
  readonly problem: StorageProblem;

  constructor(problem: StorageProblem, message: string, options?: ErrorOptions) {
    super(message, options);
    this.problem = problem;
  }
}

/** The error of a change that cannot be saved. `what`: "conversations". */
export function notWritable({ place, problem }: Database, what: string): StorageError {
  const why = problem ? `. ${problem.message}` : "";
  const message = `"${place}" can be read and not written: ${what} can be read but not saved${why}`;
  return new StorageError(problem?.problem ?? "read-only", message, { cause: problem });
}

/**
 * Brings a file to the newest version; refuses one of another kind or one that is newer than this program. Damaged or missing
 * indexes and triggers are made again. Returns the repairs.
 */
export function migrateDatabase(database: Database, kind: DatabaseKind): string[] {
  const { steps, what, letters } = kind;
  const { place } = database;
  const version = Number(database.get("PRAGMA user_version")?.user_version ?? 0);
  checkKind(database, kind, version);
  if (version > steps.length) {
    throw new StorageError(
      "newer",
      `${what}: "${place}" has version ${version}, but this Lantern reads versions up to ${steps.length}. Use the newer Lantern that made the file, or name another file`,
    );
  }
  const update = (): void => {
    for (let step = version; step < steps.length; step++) {
      database.transaction(() => {
        database.exec(steps[step]!);
        database.exec(`PRAGMA user_version = ${step + 1}`);
      });
    }
  };
  if (version < steps.length) database.writable ? update() : database.privately(update);
  const mended: string[] = [];
  if (database.writable) {
    mended.push(...mendDerived(database, steps));
    if (database.get("PRAGMA application_id")?.application_id !== numberOf(letters)) {
      database.exec(`PRAGMA application_id = ${numberOf(letters)}`);
    }
    const tables = sealedTables(database, kind);
    database.guard(tables);
    for (const table of tables) sealNew(database, table);
  }
  return mended;
}

/** A kind's letters as a number. */
export const numberOf = (letters: string): number =>
  [...letters].reduce((number, letter) => number * 256 + letter.charCodeAt(0), 0);

const schemaOf = (database: Database): SchemaItem[] =>
  database
    .all(
      "SELECT type, name, coalesce(sql, '') AS sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    )
    .map((row) => ({ ...row }) as unknown as SchemaItem);

/** A database of another program, or of another part of Lantern, is never changed; a damaged schema is not worked with. */
function checkKind(
  database: Database,
  { what, letters, steps }: DatabaseKind,
  version: number,
): void {
  const { place } = database;
  const id = Number(database.get("PRAGMA application_id")?.application_id ?? 0);
  const found = schemaOf(database);
  const has = new Map(
    found.filter(({ type }) => type === "table").map(({ name, sql }) => [name, sql]),
  );
  if (id === 0 && version === 0 && has.size === 0) return; // a new file
  const tablesOf = (count: number): SchemaItem[] =>
    database.madeBy(steps.slice(0, count)).filter(({ type }) => type === "table");
  const isOurs =
    id === numberOf(letters) ||
    (id === 0 && version > 0 && tablesOf(1).every(({ name }) => has.has(name)));
  if (!isOurs) {
    const shown = [...has.keys()]
      .slice(0, 5)
      .map((name) => JSON.stringify(name))
      .join(", ");
    throw new StorageError(
      "foreign",
      `${what}: "${place}" is a database of another kind (its tables: ${shown === "" ? "none" : shown}), so it is left as it is. Name another file`,
    );
  }
  if (version > steps.length) return;
  const wrong = tablesOf(version).find(({ name, sql }) => !isSame(has.get(name), sql));
  const early = tablesOf(steps.length).find(
    ({ name }) => has.has(name) && !tablesOf(version).some((one) => one.name === name),
  );
  if (!wrong && !early) return;
  const why = early
    ? `its version says ${version}, but it has the table ${early.name}`
    : `its table ${wrong!.name} ${has.has(wrong!.name) ? "has other columns or rules than it was made with" : "is missing"}`;
  throw new StorageError("corrupt", `${what}: "${place}": ${why}`);
}

function isSame(found: string | undefined, made: string): boolean {
  const plain = (sql: string): string => sql.replaceAll(/\s+/g, " ");
  return found !== undefined && (isVirtual(made) || plain(found) === plain(made));
}

const isVirtual = (sql: string): boolean => sql.startsWith("CREATE VIRTUAL");

/** Makes indexes and triggers again that are not as they were made: everything in them follows from the tables. */
function mendDerived(database: Database, steps: readonly string[]): string[] {
  const found = new Map(schemaOf(database).map((item) => [item.name, item]));
  const wrong = database
    .madeBy(steps)
    .filter(
      ({ type, name, sql }) =>
        (type === "index" || type === "trigger") && !isSame(found.get(name)?.sql, sql),
    );
  if (wrong.length === 0) return [];
  database.transaction(() => {
    for (const { type, name, sql } of wrong) {
      if (found.has(name)) database.exec(`DROP ${type} ${name}`);
      database.exec(sql);
    }
  });
  return wrong.map(
    ({ type, name }) =>
      `"${database.place}": the ${type} ${name} was damaged or missing and is made again`,
  );
}

function sealedTables(database: Database, { sealed }: DatabaseKind): SealedTable[] {
  return sealed.map((name) => {
    const columns = database.all(
      `SELECT name, pk FROM pragma_table_info('${name}') WHERE name <> 'sum'`,
    );
    const names = (rows: readonly SqlRow[]): string[] => rows.map((row) => row.name as string);
    return { name, key: names(columns.filter(({ pk }) => pk !== 0)), columns: names(columns) };
  });
}

/** The checksum of a row's contents, as an expression. `row`: "new." in a trigger. */
export function sumOf({ columns }: SealedTable, row: string = ""): string {
  return `row_sum(${columns.map((name) => `CAST(${row}"${name}" AS BLOB)`).join(", ")})`;
}

/** Gives a checksum to rows that have none: rows of an older version, or of another program. */
function sealNew(database: Database, table: SealedTable): void {
  const { name } = table;
  if (!database.get(`SELECT 1 FROM ${name} WHERE sum IS NULL LIMIT 1`)) return;
  database.run(`UPDATE ${name} SET sum = ${sumOf(table)} WHERE sum IS NULL`);
}

/** The keys of rows with contents that do not match their checksum: they are not as they were written. */
export function unsoundRows(database: Database, kind: DatabaseKind, name: string): SqlRow[] {
  const table = sealedTable(database, kind, name);
  const key = table.key.map((column) => `"${column}"`).join(", ");
  return database.all(
    `SELECT ${key} FROM ${name} WHERE sum IS NOT NULL AND sum <> ${sumOf(table)}`,
  );
}

/** Whether a row would have its checksum if a column had another value. */
export function isSoundWith(
  database: Database,
  kind: DatabaseKind,
  name: string,
  [column, value]: readonly [string, SqlValue],
  [keyColumn, key]: readonly [string, SqlValue],
): boolean {
  const table = sealedTable(database, kind, name);
  const others = table.columns.filter((one) => one !== column).map((one) => `"${one}"`);
  const row = `SELECT sum, ${others.join(", ")}, ?1 AS "${column}" FROM ${name} WHERE "${keyColumn}" = ?2`;
  return (
    database.get(`SELECT 1 FROM (${row}) WHERE sum = ${sumOf(table)}`, value, key) !== undefined
  );
}

export function sealedTable(database: Database, kind: DatabaseKind, name: string): SealedTable {
  return sealedTables(database, kind).find((table) => table.name === name)!;
}
