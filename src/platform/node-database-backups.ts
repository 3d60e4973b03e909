// Backups of a database in Node: "sessions.db.backup-TIME" beside "sessions.db", for this user only. A backup gets its name when it is
// whole and on disk; until then it is "sessions.db.backup-part", of which there is at most one, since one process has the database
// open.
//
// Data deleted from a backup is overwritten, as in the database, and the rest is written again: its log has only pages without that
// data, and is emptied before change() resolves.

import * as fs from "node:fs";
import { basename, dirname, resolve } from "node:path";
import type { SQLInputValue, StatementSync } from "node:sqlite";
import {
  type BackupDraft,
  type BackupFiles,
  type Database,
  type DatabaseKind,
  numberOf,
  StorageError,
} from "./database.ts";
import {
  checkUnused,
  NodeDatabase,
  openNodeDatabase,
  openSqlite,
  setCommon,
} from "./node-database.ts";
import { toStorageError } from "./node-database-errors.ts";
import { makePrivateFile, privateFileMode } from "./node-private.ts";

const suffixes = ["", "-wal", "-shm", "-journal"];
const zeros = new Uint8Array(1 << 20);

export function nodeBackups(file: string): BackupFiles {
  const path = resolve(file);
  const folder = dirname(path);
  const part = `${path}.backup-part`;
  const pathOf = (time: number): string => `${path}.backup-${stampOf(time)}`;
  const namesWith = (beginning: string): string[] => {
    const start = `${basename(path)}.${beginning}-`;
    const names = fs.existsSync(folder) ? fs.readdirSync(folder) : [];
    return names.filter((name) => name.startsWith(start)).map((name) => name.slice(start.length));
  };
  const removeDraft = (): void => removeFiles(part);
  const remove = async (time: number): Promise<void> => {
    removeDraft();
    // Renamed first: a partly overwritten file is no backup any more, also after a kill.
    fs.renameSync(pathOf(time), part);
    for (const suffix of suffixes) fs.rmSync(pathOf(time) + suffix, { force: true });
    await overwrite(part);
    removeDraft();
  };
  return {
    times: () =>
      namesWith("backup")
        .flatMap((stamp) => timeOf(stamp) ?? [])
        .toSorted((a, b) => b - a),
    begin: (kind) => {
      removeDraft();
      return inWords(part, () => begin(part, kind, pathOf));
    },
    removeDraft,
    open: (time) => openNodeDatabase(pathOf(time), { readOnly: true }),
    async change(time, work) {
      try {
        inWords(pathOf(time), () => change(pathOf(time), work));
      } catch (error) {
        if (!(error instanceof StorageError && error.problem === "corrupt")) throw error;
        await remove(time); // a backup from which no data can be deleted must not stay
      }
    },
    remove,
    moveAside() {
      // SQLite deletes a log that lies beside an empty file.
      if (fs.statSync(path, { throwIfNoEntry: false })?.size) checkUnused(path, 2000);
      const aside = `${path}.replaced-${stampOf(Date.now())}`;
      inWords(path, () => {
        // "-saves" stays: until another file is there, it says that one is missing.
        for (const suffix of ["-wal", "-journal", ""]) {
          if (fs.existsSync(path + suffix)) fs.renameSync(path + suffix, aside + suffix);
        }
        fs.rmSync(`${path}-shm`, { force: true });
      });
      return aside;
    },
    otherCopies: () =>
      ["damaged", "replaced"].flatMap((what) =>
        namesWith(what).map((rest) => `${path}.${what}-${rest}`),
      ),
  };
}

function removeFiles(path: string): void {
  for (const suffix of suffixes) fs.rmSync(path + suffix, { force: true });
}

const stampOf = (time: number): string => new Date(time).toISOString().replaceAll(/[:.]/g, "-");

/** undefined: not the name of a backup. */
function timeOf(stamp: string): number | undefined {
  const parts = /^(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)-(\d{3})Z$/.exec(stamp);
  const time = parts
    ? Date.parse(`${parts[1]}T${parts[2]}:${parts[3]}:${parts[4]}.${parts[5]}Z`)
    : NaN;
  return Number.isNaN(time) ? undefined : time;
}

function begin(part: string, kind: DatabaseKind, pathOf: (time: number) => string): BackupDraft {
  makePrivateFile(part);
  const sqlite = openSqlite(part);
  try {
    setCommon(sqlite);
    // Nobody needs a half of it, and it is on disk before it has its name.
    for (const pragma of ["journal_mode = MEMORY", "synchronous = OFF", "foreign_keys = OFF"]) {
      sqlite.exec(`PRAGMA ${pragma}`);
    }
    for (const step of kind.steps) sqlite.exec(step);
    // No index of words: the first process that opens it for writing makes one.
    const triggers = sqlite.prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'").all();
    for (const { name } of triggers) sqlite.exec(`DROP TRIGGER ${name}`);
    sqlite.exec(`PRAGMA user_version = ${kind.steps.length}`);
    sqlite.exec(`PRAGMA application_id = ${numberOf(kind.letters)}`);
  } catch (error) {
    sqlite.close();
    removeFiles(part);
    throw error;
  }
  const statements = new Map<string, StatementSync>();
  return {
    insert: (table, row) =>
      inWords(part, () => {
        const names = Object.keys(row);
        let statement = statements.get(table);
        if (!statement) {
          const values = names.map(() => "?").join(", ");
          statement = sqlite.prepare(
            `INSERT INTO ${table} (${names.join(", ")}) VALUES (${values})`,
          );
          statements.set(table, statement);
        }
        statement.run(...(Object.values(row) as SQLInputValue[]));
      }),
    abandon() {
      if (sqlite.isOpen) sqlite.close();
      removeFiles(part);
    },
    async finish(time) {
      sqlite.close();
      try {
        await synced(part);
        await fs.promises.rename(part, pathOf(time));
        await synced(dirname(part));
      } catch (error) {
        throw toStorageError(error, part, "write");
      }
    },
  };
}

function change(path: string, work: (backup: Database) => void): void {
  const sqlite = openSqlite(path);
  try {
    for (const pragma of ["locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"]) {
      sqlite.exec(`PRAGMA ${pragma}`);
    }
    setCommon(sqlite);
    sqlite.exec("PRAGMA secure_delete = ON");
    const facts = { writable: true, damaged: [], findings: [], problem: undefined };
    const backup = new NodeDatabase(sqlite, path, facts);
    const changes = () => backup.get("SELECT total_changes() AS n")!.n;
    const before = changes();
    backup.transaction(() => work(backup));
    // Pages that were divided have copies of rows in their free bytes, where no deletion finds them.
    if (changes() !== before) backup.exec("VACUUM");
    backup.get("PRAGMA wal_checkpoint(TRUNCATE)");
    backup.close();
  } finally {
    if (sqlite.isOpen) sqlite.close();
  }
}

async function overwrite(path: string): Promise<void> {
  const handle = await fs.promises.open(path, "r+", privateFileMode);
  try {
    const { size } = await handle.stat();
    for (let at = 0; at < size; at += zeros.length) {
      await handle.write(zeros, 0, Math.min(zeros.length, size - at), at);
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** On disk. A folder cannot be opened for that on every system. */
async function synced(path: string): Promise<void> {
  const isFolder = (await fs.promises.stat(path)).isDirectory();
  if (isFolder && process.platform === "win32") return;
  const handle = await fs.promises.open(path, isFolder ? "r" : "r+");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function inWords<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw toStorageError(error, path, "write");
  }
}
