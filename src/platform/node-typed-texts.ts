// The texts typed in `lantern chat`, in a private file of the data folder: one JSON string for each text, so that it may have many
// lines. Every text is one append, so that several chats can write at once; damaged lines are left out. The file is bounded: a full one
// becomes the older of two, and replaces the one before.

import * as fs from "node:fs";
import * as path from "node:path";
import { SourceError } from "../base/errors.ts";
import { dataFolder, type Environment } from "./node-folders.ts";
import { homeFolder, pathReasonOf } from "./node-path-errors.ts";
import { makePrivateFolder, privateFileMode, tightenFile } from "./node-private.ts";

export interface TypedTexts {
  /** The last is the newest. Never fails: unreadable lines are left out. */
  read(): Promise<string[]>;
  add(text: string): Promise<void>;
}

/** Bytes of each of the two files. */
const fullBytes = 512 * 1024;
/** A longer text is not kept: it would displace the others. */
const mostBytes = 64 * 1024;
const mostTexts = 1000;
/** A lock held for this long belongs to a killed process. */
const staleLockMs = 60_000;

const { O_APPEND, O_CREAT, O_WRONLY, O_RDONLY, O_NONBLOCK = 0 } = fs.constants;

export function nodeTypedTexts(
  env: Environment = process.env,
  { full = fullBytes, longest = mostBytes }: { full?: number; longest?: number } = {},
): TypedTexts {
  const folder = dataFolder(env, process.platform, homeFolder());
  const file = path.join(folder, "typed.jsonl");
  const older = path.join(folder, "typed-older.jsonl");
  return {
    read: async () => [...textsOf(older, full), ...textsOf(file, full)].slice(-mostTexts),
    add: async (text) => {
      const line = JSON.stringify(text);
      if (line.length > longest) return;
      try {
        makePrivateFolder(folder, env);
        if (append(file, line) > full) rotate(file, older, full);
      } catch (error) {
        throw new SourceError(`${file}: ${pathReasonOf(error)}`, { cause: error });
      }
    },
  };
}

/** The texts of a file, from its end. */
function textsOf(file: string, full: number): string[] {
  let text: string;
  try {
    tightenFile(file);
    text = lastBytes(file, 2 * full);
  } catch {
    return [];
  }
  return text.split("\n").flatMap((line) => {
    try {
      const found: unknown = JSON.parse(line);
      return typeof found === "string" ? [found] : [];
    } catch {
      return []; // half a line of a process that was killed
    }
  });
}

function lastBytes(file: string, most: number): string {
  const descriptor = fs.openSync(file, O_RDONLY | O_NONBLOCK); // not held up by a pipe
  try {
    const facts = fs.fstatSync(descriptor);
    if (!facts.isFile()) return "";
    const bytes = new Uint8Array(Math.min(facts.size, most));
    const count = fs.readSync(descriptor, bytes, 0, bytes.length, facts.size - bytes.length);
    return new TextDecoder().decode(bytes.subarray(0, count));
  } finally {
    fs.closeSync(descriptor);
  }
}

/** Bytes of the file afterwards. */
function append(file: string, line: string): number {
  const flags = O_APPEND | O_CREAT | O_WRONLY | O_NONBLOCK;
  const descriptor = fs.openSync(file, flags, privateFileMode);
  try {
    if (!fs.fstatSync(descriptor).isFile()) throw new SourceError("it is no file");
    // The break comes first: half a line of a process that was killed stays alone.
    fs.writeSync(descriptor, `\n${line}`);
    return fs.fstatSync(descriptor).size;
  } finally {
    fs.closeSync(descriptor);
    tightenFile(file);
  }
}

/** One process at a time: a second would take a file that has just begun for a full one. */
function rotate(file: string, older: string, full: number): void {
  const lock = `${file}.lock`;
  try {
    fs.closeSync(fs.openSync(lock, "wx", privateFileMode));
  } catch {
    const since = fs.statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
    if (Date.now() - since > staleLockMs) fs.rmSync(lock, { force: true });
    return; // the next text tries again
  }
  try {
    if (fs.statSync(file).size > full) fs.renameSync(file, older);
  } finally {
    fs.rmSync(lock, { force: true });
  }
}
