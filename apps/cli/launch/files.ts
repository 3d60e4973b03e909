// The configuration files of a launch: what would change in each, the writing with a backup of the first version, and the undoing, which
// puts every file back byte for byte.
//
// The record of a client is "record.json" in its folder; the backups lie beside it. A file is backed up before Lantern's first change
// only: later launches change Lantern's own version.

import { UsageError } from "../../../src/index.ts";
import {
  checkConfigPlace,
  readConfigFile,
  removeConfigFile,
  writeConfigFile,
} from "../../../src/platform/node-config-file.ts";
import type { ConfigChange } from "./client.ts";
import { merged } from "./merge.ts";

/** A file with its next text. */
export interface PlannedFile {
  readonly change: ConfigChange;
  /** The file itself, where the path is a link. */
  readonly place: string;
  readonly before: Uint8Array | undefined;
  readonly mode: number | undefined;
  readonly after: Uint8Array;
}

/** One file in a record. */
interface Written {
  readonly path: string;
  /** Its backup; undefined: there was no file. */
  readonly backup?: string;
  readonly mode?: number;
  /** What Lantern wrote last, so that a later change by others is seen. */
  readonly text: string;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

/** Reads every file and makes its next text, and writes nothing. Files that already say it all are left out. */
export function planFiles(changes: readonly ConfigChange[]): PlannedFile[] {
  return changes.flatMap((change) => {
    const { place, bytes, mode } = readConfigFile(change.path);
    const text = merged(textOf(bytes, change.path), change.format, change.set, change.path);
    const after = encoder.encode(text);
    if (bytes !== undefined && isEqual(bytes, after)) return [];
    checkConfigPlace(place);
    return [{ change, place, before: bytes, mode, after }];
  });
}

function textOf(bytes: Uint8Array | undefined, path: string): string {
  try {
    return bytes === undefined ? "" : decoder.decode(bytes);
  } catch {
    throw new UsageError(
      `launch: ${path} is not changed: it is no UTF-8 text. Repair it or move it away`,
    );
  }
}

/** The record is written first: whatever happens then, it knows what to put back. */
export function writeFiles(files: readonly PlannedFile[], folder: Folder): void {
  const record = new Map(readRecord(folder).map((written) => [written.path, written]));
  for (const { place, before, mode, after } of files) {
    const known = record.get(place);
    const backup = known ? known.backup : before && folder.join(`backup-${record.size + 1}`);
    if (!known && before && backup) writeConfigFile(backup, before);
    record.set(place, {
      path: place,
      ...(backup !== undefined && { backup }),
      ...((known?.mode ?? mode) !== undefined && { mode: known?.mode ?? mode! }),
      text: decoder.decode(after),
    });
  }
  writeRecord([...record.values()], folder);
  for (const { place, mode, after } of files) writeConfigFile(place, after, mode);
}

/** A folder of Lantern's own for one client. */
export interface Folder {
  join(name: string): string;
}

export interface Restorable {
  readonly path: string;
  /** removed: there was no such file before. */
  readonly kind: "restored" | "removed";
  /** Somebody else has changed it since. */
  readonly isChanged: boolean;
}

export function restorable(folder: Folder): Restorable[] {
  return readRecord(folder).map(({ path, backup, text }) => {
    const { bytes } = readConfigFile(path);
    return {
      path,
      kind: backup === undefined ? "removed" : "restored",
      isChanged: bytes !== undefined && !isEqual(bytes, encoder.encode(text)),
    };
  });
}

/** Puts every file back. What others made of it since is kept beside the backups. */
export function restore(folder: Folder): void {
  const record = readRecord(folder);
  for (const [at, { path, backup, mode, text }] of record.entries()) {
    const { bytes } = readConfigFile(path);
    if (bytes !== undefined && !isEqual(bytes, encoder.encode(text))) {
      writeConfigFile(folder.join(`changed-${at + 1}`), bytes);
    }
    if (backup === undefined) {
      removeConfigFile(path);
      continue;
    }
    const kept = readConfigFile(backup).bytes;
    if (kept === undefined) {
      throw new UsageError(`launch: the backup ${backup} of ${path} is not there any more`);
    }
    writeConfigFile(path, kept, mode);
  }
  for (const { backup } of record) if (backup !== undefined) removeConfigFile(backup);
  removeConfigFile(folder.join("record.json"));
}

function writeRecord(record: readonly Written[], folder: Folder): void {
  writeConfigFile(folder.join("record.json"), encoder.encode(JSON.stringify(record, null, 1)));
}

function readRecord(folder: Folder): Written[] {
  const file = folder.join("record.json");
  const { bytes } = readConfigFile(file);
  if (bytes === undefined) return [];
  try {
    const found = JSON.parse(decoder.decode(bytes)) as Written[];
    const isWhole = found.every(
      ({ path, backup, text }) =>
        typeof path === "string" &&
        typeof text === "string" &&
        (backup === undefined || typeof backup === "string"),
    );
    if (isWhole) return found;
  } catch {
    // said below
  }
  throw new UsageError(
    `launch: ${file} is damaged, so it is not known what to put back. The backups lie beside it`,
  );
}

function isEqual(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}
