// The rules for what an output may replace in Node. It never replaces a file that this process has read: that is an input of the
// same command. A text replaces only text, never a model, a database or a picture. A file named by another party (a client of the
// server) replaces only files of its own kind: everything else is not its own, links, folders and pipes included.

import * as fs from "node:fs";
import { SourceError, UsageError } from "../base/errors.ts";
import type { OwnFiles } from "./output-file.ts";

/** Bytes that tell a text from something else. */
const lookedAt = 4096;

/** Device and inode of every file that was read by name. */
const inputs = new Set<string>();

/** Remembers that this command reads a file. */
export function noteInput(path: string): void {
  const facts = fs.statSync(path, { throwIfNoEntry: false });
  if (facts?.isFile()) inputs.add(idOf(facts));
}

export function refuseInput(path: string, facts: fs.Stats): void {
  if (!facts.isFile() || !inputs.has(idOf(facts))) return;
  throw new UsageError(
    `output: "${path}" is an input of this command, which is being read. Choose another name`,
  );
}

const idOf = ({ dev, ino }: fs.Stats): string => `${dev}:${ino}`;

/** Throws a UsageError if a text must not be written: over an input, or over a file that is no text. */
export function refuseText(path: string): void {
  const facts = fs.statSync(path, { throwIfNoEntry: false });
  if (!facts?.isFile()) return; // opening it will report the error
  refuseInput(path, facts);
  let start: Uint8Array;
  try {
    start = firstBytes(path, lookedAt);
  } catch {
    return; // it may be written and not read: then its contents are unknown
  }
  if (start.includes(0)) {
    throw new UsageError(
      `output: "${path}" exists and is no text file, so no text replaces it. Choose another name, or remove it first`,
    );
  }
}

/** Throws where something is at this path that is not one of these files. */
export function refuseForeign(path: string, own: OwnFiles): void {
  const facts = fs.lstatSync(path, { throwIfNoEntry: false });
  if (facts === undefined) return;
  const what = facts.isSymbolicLink() ? "a link" : facts.isDirectory() ? "a folder" : undefined;
  if (what === undefined && facts.isFile() && isOwn(path, own)) return;
  throw new UsageError(
    `output: "${path}" exists and is ${what ?? `no ${own.what}`}, so it is not replaced. Choose another name`,
  );
}

/** Gives a finished file its name. It replaces a file of that name only if it is one of these files, even if it came meanwhile. */
export function publish(part: string, place: string, own: OwnFiles): void {
  try {
    fs.linkSync(part, place); // fails if anything is there
    fs.rmSync(part);
    return;
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    // A disk without hard links: the look below is all that can be had.
    const isExpected = ["EEXIST", "EPERM", "ENOTSUP", "EOPNOTSUPP", "EMLINK", "ENOSYS"];
    if (!isExpected.includes(code)) throw error;
  }
  refuseForeign(place, own);
  fs.renameSync(part, place);
}

function isOwn(path: string, { bytes, isOwn: has }: OwnFiles): boolean {
  try {
    return has(firstBytes(path, bytes));
  } catch {
    return false; // an unreadable file may be anything
  }
}

function firstBytes(path: string, count: number): Uint8Array {
  const { O_RDONLY, O_NONBLOCK } = fs.constants;
  const descriptor = fs.openSync(path, O_RDONLY | O_NONBLOCK); // not held up by a pipe
  try {
    if (!fs.fstatSync(descriptor).isFile()) throw new SourceError(`${path} is no file`);
    const found = new Uint8Array(count);
    return found.subarray(0, fs.readSync(descriptor, found, 0, count, 0));
  } finally {
    fs.closeSync(descriptor);
  }
}
