// Looks at the files of a database before SQLite does, and finds missing data afterwards. SQLite reads a damaged log as far as it is
// sound and drops the rest, deletes a log beside an empty file, and takes the log of another file for its own, all silently.
// Suspicious files are copied first.

import * as fs from "node:fs";
import { StorageError } from "./database.ts";
import { keepDamaged, privateCopy, removeCopy } from "./node-database-copies.ts";
import { pathReasonOf } from "./node-path-errors.ts";
import { readSaves, type Saves, savesFile } from "./node-saves.ts";
import { readWal, type WalFacts } from "./node-wal.ts";

export interface Look {
  /** Whether something is in the log. */
  readonly hasLog: boolean;
  /** The missing data, in sentences. */
  readonly findings: readonly string[];
}

/** The contents of a file with its log. */
export interface Contents {
  /** Its own count of its transactions; undefined: it has none yet. */
  readonly saves: { readonly id: string; readonly count: number } | undefined;
}

export interface Looker {
  /** May make copies beside the file and move a log away. */
  readonly mayWrite: boolean;
  /** Throws if another process has the file open. */
  checkUnused(): void;
  /** Reads a file without its log, unchecked. */
  read(path: string): Contents;
  /** Reads and checks a file with its log, which may be changed. */
  check(path: string): Contents;
}

export function lookAt(path: string, looker: Looker): Look {
  const bytes = fs.statSync(path, { throwIfNoEntry: false })?.size;
  const saves = readSaves(path);
  const log = readLog(path);
  const wal = log && readWal(log);
  if (bytes === undefined)
    return { hasLog: false, findings: withoutFile(path, saves, wal, looker) };
  const hasLog = wal !== undefined;
  if (bytes === 0 && (hasLog || (saves?.count ?? 0) > 0)) {
    const had = hasLog ? `, and beside it is a log with ${Math.round(log!.length / 1024)} KiB` : "";
    const reason = new StorageError("corrupt", `database: "${path}" was emptied${had}`);
    throw corrupt(path, reason, looker.mayWrite);
  }
  if (bytes === 0) return { hasLog, findings: [] };
  if (wal && isAsLeft(wal, saves)) return { hasLog, findings: [] };
  if (!wal) {
    if (saves === undefined) return { hasLog, findings: [] };
    const { saves: now } = looker.read(path);
    if (now?.id === saves.id && now.count >= saves.count) return { hasLog, findings: [] };
  }
  looker.checkUnused();
  return { hasLog, findings: inspect(path, saves, wal, looker) };
}

/** Whether a log has all that it had after the last save. */
function isAsLeft(wal: WalFacts, saves: Saves | undefined): boolean {
  if (!wal.isHeaderSound || wal.droppedFrames > 0) return false;
  return saves === undefined || (wal.salts === saves.salts && wal.end >= saves.end);
}

/** There is no file: it was never there, or it is gone. */
function withoutFile(
  path: string,
  saves: Saves | undefined,
  wal: WalFacts | undefined,
  { mayWrite }: Looker,
): string[] {
  if (!mayWrite || (!wal && (saves?.count ?? 0) === 0)) return [];
  let moved = "";
  if (wal) {
    const { copy } = copied(path);
    fs.rmSync(`${path}-wal`);
    moved = ` Its log was moved to "${copy}-wal".`;
  }
  fs.rmSync(savesFile(path), { force: true });
  return [
    `"${path}" is gone, which was saved ${saves?.count ?? "some"} times. An empty one was begun.${moved}`,
  ];
}

/** Something is not as it was left: looks at a copy of it, before SQLite changes anything. */
function inspect(
  path: string,
  saves: Saves | undefined,
  wal: WalFacts | undefined,
  { mayWrite, check }: Looker,
): string[] {
  const kept = mayWrite ? copied(path) : undefined;
  const view = privateCopy(path);
  let now: Contents["saves"];
  try {
    now = check(view.file).saves;
  } catch (error) {
    if (!(error instanceof StorageError && error.problem === "corrupt")) throw error;
    const why = error.message.replaceAll(view.file, path).replace(/^database: /, "");
    const reason = new StorageError("corrupt", `database: ${why}`, { cause: error });
    throw corrupt(path, reason, mayWrite);
  } finally {
    view.remove();
  }
  const copy = kept ? ` The files as they were found are at "${kept.copy}".` : "";
  if (saves && now && saves.id !== now.id) {
    return [
      `"${path}" is not the file that was last used here: it or its log was exchanged.${copy}`,
    ];
  }
  const lost = saves ? saves.count - (now?.count ?? 0) : 0;
  const isDamaged =
    wal !== undefined && (!wal.isHeaderSound || wal.droppedCommits > (saves ? 1 : 0));
  if (lost <= 0 && !isDamaged) {
    if (kept?.isNew) removeCopy(kept.copy); // a process was ended while it wrote: no saved data is lost
    return [];
  }
  const log = `"${path}-wal"`;
  const how = !wal
    ? `its log ${log} was deleted, or an older file was put in its place`
    : isDamaged || wal.droppedFrames > 0
      ? `its log ${log} is damaged`
      : `its log ${log} was cut off, or older files were put in its place`;
  const count =
    lost > 0
      ? `the last ${lost === 1 ? "save is" : `${lost} saves are`}`
      : "what was saved last is";
  return [`"${path}": ${count} missing: ${how}.${copy}`];
}

function readLog(path: string): Uint8Array | undefined {
  try {
    return fs.readFileSync(`${path}-wal`);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

function copied(path: string): { copy: string; isNew: boolean } {
  try {
    return keepDamaged(path);
  } catch (error) {
    throw new StorageError(
      "corrupt",
      `database: "${path}" or its log is damaged, and no copy could be made, so nothing is changed: ${pathReasonOf(error)}`,
      { cause: error },
    );
  }
}

const advice =
  'Move the file away to start with an empty one, or try "sqlite3 FILE .recover" on the copy';

/** Keeps a copy of a damaged file and its log, once per state of the file, and says where. */
export function corrupt(
  path: string,
  reason: StorageError,
  mayWrite: boolean = true,
): StorageError {
  if (reason.message.includes(advice)) return reason;
  let kept = "No copy could be made: the folder is read-only.";
  if (mayWrite) {
    try {
      kept = `A copy is at "${keepDamaged(path).copy}".`;
    } catch (error) {
      kept = `A copy could not be made: ${pathReasonOf(error)}.`;
    }
  }
  return new StorageError("corrupt", `${reason.message}. ${kept} ${advice}`, { cause: reason });
}
