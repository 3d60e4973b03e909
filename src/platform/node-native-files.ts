// The files that machine code is opened from: a folder in the user's cache that nobody else may write to, or read. A file
// is named by the hash of its content, written beside and renamed, and before each use compared with what it must be:
// whatever lies there, no other code than ours is opened.
//
// Nothing is ever writable and executable at once: a file is made with mode 0600 and becomes 0500 before it gets its name.

import { createHash, randomUUID } from "node:crypto";
import * as fs from "node:fs";
import * as path from "node:path";

export type Stored = { readonly path: string } | { readonly refused: string };

const DAY_MS = 24 * 3600 * 1000;
/** Files that nobody opened for so long are of an older Lantern, or of a model that is not used any more. */
const STALE_MS: number = 30 * DAY_MS;
/** Files that were begun and never got their name. */
const ABANDONED_MS: number = DAY_MS;

/** Finds or makes the file of this content. */
export function storeSharedObject(folder: string, content: Uint8Array): Stored {
  try {
    fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
    const wrong = wrongFolder(folder);
    if (wrong !== undefined) return { refused: wrong };
    const hash = createHash("sha256").update(content).digest("hex");
    const file = path.join(folder, `${hash}.so`);
    if (isIntact(file, content)) keepFresh(file);
    else {
      write(file, content);
      clean(folder);
      if (!isIntact(file, content)) return { refused: `${file} was changed while it was made` };
    }
    return { path: file };
  } catch (error) {
    return { refused: `nothing can be kept in ${folder} (${(error as Error).message})` };
  }
}

/** What is wrong with the folder; undefined: only this user can change what is in it. */
function wrongFolder(folder: string): string | undefined {
  const { uid, mode, isDirectory } = facts(fs.lstatSync(folder));
  if (!isDirectory) return `${folder} is not a folder`;
  if (uid !== ownUid()) return `${folder} belongs to another user (${uid}, not ${ownUid()})`;
  if ((mode & 0o077) !== 0) {
    return `${folder} is open to others (mode ${octal(mode)}, expected 700): chmod 700, or remove it`;
  }
  for (let above = path.dirname(fs.realpathSync(folder)); ; above = path.dirname(above)) {
    const { mode: bits } = facts(fs.statSync(above));
    // In a folder like /tmp (sticky) everybody may write, but not rename what is another's.
    if ((bits & 0o002) !== 0 && (bits & 0o1000) === 0) {
      return `everybody may replace what is in ${above} (mode ${octal(bits)}), and ${folder} is in it`;
    }
    if (above === path.dirname(above)) return undefined;
  }
}

/** A plain file of ours that nobody else can write, with exactly this content. */
function isIntact(file: string, content: Uint8Array): boolean {
  let handle: number;
  try {
    handle = fs.openSync(file, fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW);
  } catch {
    return false;
  }
  try {
    const { uid, mode, size, isFile } = facts(fs.fstatSync(handle));
    const isOurs = isFile && uid === ownUid() && mode === 0o500 && size === content.length;
    return isOurs && fs.readFileSync(handle).equals(content);
  } finally {
    fs.closeSync(handle);
  }
}

/** Whole or not at all; whoever reads meanwhile sees the old file or the new one. */
function write(file: string, content: Uint8Array): void {
  const beside = `${file}.${randomUUID()}`;
  try {
    fs.writeFileSync(beside, content, { flag: "wx", mode: 0o600 });
    fs.chmodSync(beside, 0o500);
    fs.renameSync(beside, file);
  } catch (error) {
    fs.rmSync(beside, { force: true });
    throw error;
  }
}

/** Its time says when it was last used. */
function keepFresh(file: string): void {
  if (Date.now() - fs.statSync(file).mtimeMs < DAY_MS) return;
  const now = new Date();
  fs.utimesSync(file, now, now);
}

/** Removes what is not used any more; another process may be doing the same. */
function clean(folder: string): void {
  for (const name of fs.readdirSync(folder)) {
    const known = /^[0-9a-f]{64}\.so(\.[0-9a-f-]+)?$/.exec(name);
    if (!known) continue; // not ours to remove
    const limit = known[1] === undefined ? STALE_MS : ABANDONED_MS;
    const file = path.join(folder, name);
    const age = Date.now() - (fs.lstatSync(file, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
    if (age > limit) fs.rmSync(file, { force: true });
  }
}

function facts(stats: fs.Stats) {
  const { uid, size } = stats;
  const mode = stats.mode & 0o7777;
  return { uid, size, mode, isFile: stats.isFile(), isDirectory: stats.isDirectory() };
}

function ownUid(): number {
  return process.geteuid!(); // where there are users: Linux
}

function octal(mode: number): string {
  return mode.toString(8);
}
