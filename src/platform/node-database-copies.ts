// Copies of database files in Node: of damaged ones, kept beside them under a name with the time; and private ones, from which
// a file in a read-only folder is read together with its log.

import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { privateFileMode } from "./node-private.ts";

/** Copies a database file and its log, once per state of the file; returns where the copy is, and whether it was made now. */
export function keepDamaged(path: string): { copy: string; isNew: boolean } {
  const facts = ["", "-wal"].map((suffix) => {
    const found = fs.statSync(path + suffix, { throwIfNoEntry: false });
    return suffix === "" || (found && found.size > 0) ? found : undefined;
  });
  const last = Math.max(...facts.map((file) => file?.mtimeMs ?? 0));
  const copy = `${path}.damaged-${new Date(last).toISOString().replaceAll(/[:.]/g, "-")}`;
  let isNew = false;
  for (const [at, suffix] of ["", "-wal"].entries()) {
    if (facts[at] === undefined || fs.existsSync(copy + suffix)) continue;
    isNew = true;
    copyPrivate(path + suffix, copy + suffix);
  }
  return { copy, isNew };
}

export function removeCopy(copy: string): void {
  for (const suffix of ["", "-wal"]) fs.rmSync(copy + suffix, { force: true });
}

/** A copy of a file and its log in a folder of its own, for this user only. remove() removes it, as far as it is there. */
export function privateCopy(path: string): { file: string; remove(): void } {
  const folder = fs.mkdtempSync(join(tmpdir(), "lantern-"));
  const file = join(folder, basename(path));
  const remove = (): void => fs.rmSync(folder, { recursive: true, force: true });
  try {
    for (const suffix of ["", "-wal"]) {
      if (fs.existsSync(path + suffix)) copyPrivate(path + suffix, file + suffix);
    }
  } catch (error) {
    remove();
    throw error;
  }
  return { file, remove };
}

function copyPrivate(from: string, to: string): void {
  const part = join(dirname(to), `${basename(to)}.part`);
  try {
    fs.closeSync(fs.openSync(part, "w", privateFileMode));
    fs.copyFileSync(from, part);
    fs.chmodSync(part, privateFileMode); // a copy takes its mode from a read-only original
    fs.renameSync(part, to);
  } catch (error) {
    fs.rmSync(part, { force: true });
    throw error;
  }
}
