// The files that machine code is loaded from if memory files are not available (node-native-memory.ts). They are in a folder of the
// user's cache that no other user may read or write. A file is named by the hash of its content, written under another name and
// renamed. It is opened once, and the same descriptor is checked, compared with the expected content and loaded as code: even if
// the file is replaced meanwhile, only our own code is run.
//
// No file is ever writable and executable at once: a file is created with mode 0600 and becomes 0500 before it is renamed.

import * as fs from "node:fs";
import * as path from "node:path";
import { nodeCrypto } from "./node-builtin.ts";
import { descriptorsTo, type Held, hasContent } from "./node-descriptors.ts";
import type { Libc } from "./node-libc.ts";
import { makeFolders } from "./node-make-folders.ts";

const DAY_MS = 24 * 3600 * 1000;
/** Files not opened for this long belong to an older Lantern, or to a model that is no longer used. */
const STALE_MS: number = 30 * DAY_MS;
/** Files that were started and never renamed. */
const ABANDONED_MS: number = DAY_MS;

/** Finds or makes the file of this content; `name` is a hash of it. */
export function holdInFile(libc: Libc, folder: string, content: Uint8Array, name: string): Held {
  let above: number | undefined;
  try {
    makeFolders(folder, 0o700);
    const opened = openFolder(folder);
    if ("refused" in opened) return opened;
    above = opened.descriptor;
    // By descriptor: even if the path changes, this is the folder that was checked.
    const inside = `/proc/self/fd/${above}`;
    const file = path.join(inside, `${name}.so`);
    const known = heldAlready(path.join(fs.readlinkSync(inside), `${name}.so`), content);
    if (known !== undefined) return { descriptor: known };
    const found = openIntact(libc, file, content);
    if (found !== undefined) {
      keepFresh(file);
      return { descriptor: found };
    }
    write(file, content);
    clean(inside);
    const made = openIntact(libc, file, content);
    if (made !== undefined) return { descriptor: made };
    return { refused: `${path.join(folder, `${name}.so`)} was changed while it was made` };
  } catch (error) {
    return { refused: `nothing can be kept in ${folder} (${(error as Error).message})` };
  } finally {
    if (above !== undefined) fs.closeSync(above);
  }
}

/** Removes unused files, if the folder exists. */
export function cleanFolder(folder: string): void {
  let opened: Held;
  try {
    opened = openFolder(folder);
  } catch {
    return; // there is none
  }
  if ("refused" in opened) return;
  try {
    clean(`/proc/self/fd/${opened.descriptor}`);
  } catch {
    // retried another time
  } finally {
    fs.closeSync(opened.descriptor);
  }
}

/** The folder, if only this user can change its contents. */
export function openFolder(folder: string): Held {
  const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = fs.constants;
  let descriptor: number;
  try {
    descriptor = fs.openSync(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOTDIR" && code !== "ELOOP") throw error;
    return { refused: `${folder} is not a folder` };
  }
  const wrong = wrongFolder(folder, fs.fstatSync(descriptor));
  if (wrong === undefined) return { descriptor };
  fs.closeSync(descriptor);
  return { refused: wrong };
}

/** The defect of the folder; undefined if only this user (and root) can change or replace it. */
function wrongFolder(folder: string, stats: fs.Stats): string | undefined {
  const { uid, mode } = facts(stats);
  if (uid !== ownUid()) return `${folder} belongs to another user (${uid}, not ${ownUid()})`;
  if ((mode & 0o077) !== 0) {
    return `${folder} is open to others (mode ${octal(mode)}, expected 700): chmod 700, or remove it`;
  }
  for (let above = path.dirname(fs.realpathSync(folder)); ; above = path.dirname(above)) {
    const { uid: owner, mode: bits } = facts(fs.statSync(above));
    if (owner !== 0 && owner !== ownUid()) {
      return `${above} belongs to another user (${owner}), and ${folder} is in it`;
    }
    // In a folder like /tmp (sticky) everybody may write, but not rename another user's files.
    if ((bits & 0o022) !== 0 && (bits & 0o1000) === 0) {
      return `others may replace what is in ${above} (mode ${octal(bits)}), and ${folder} is in it`;
    }
    if (above === path.dirname(above)) return undefined;
  }
}

/** A descriptor that another thread already has open. */
function heldAlready(target: string, content: Uint8Array): number | undefined {
  return descriptorsTo(target).find((descriptor) => isIntact(descriptor, content));
}

function openIntact(libc: Libc, file: string, content: Uint8Array): number | undefined {
  const descriptor = libc.open(file);
  if (descriptor < 0) return undefined;
  if (isIntact(descriptor, content)) return descriptor;
  libc.close(descriptor);
  return undefined;
}

/** Whether it is a plain file of this user, with one name, not writable by others, and with exactly this content. */
function isIntact(descriptor: number, content: Uint8Array): boolean {
  try {
    const { uid, mode, isFile, names } = facts(fs.fstatSync(descriptor));
    const isOurs = isFile && uid === ownUid() && mode === 0o500 && names === 1;
    return isOurs && hasContent(descriptor, content);
  } catch {
    return false; // it cannot be read, or another thread has closed it
  }
}

/** Atomic: a reader sees the old file or the new one. */
export function write(file: string, content: Uint8Array, mode = 0o500): void {
  const beside = `${file}.${nodeCrypto().randomUUID()}`;
  try {
    fs.writeFileSync(beside, content, { flag: "wx", mode: 0o600 });
    fs.chmodSync(beside, mode);
    fs.renameSync(beside, file);
  } catch (error) {
    fs.rmSync(beside, { force: true });
    throw error;
  }
}

/** Updates the file's time, which says when it was last used. */
export function keepFresh(file: string): void {
  if (Date.now() - fs.statSync(file).mtimeMs < DAY_MS) return;
  const now = new Date();
  fs.utimesSync(file, now, now);
}

/** Removes unused files; another process may be doing the same. */
function clean(folder: string): void {
  for (const name of fs.readdirSync(folder)) {
    const known =
      /^(?:(?:[0-9a-f]{64}|[0-9a-f]{8}-\d+)\.so|kernels-[a-z0-9-]+\.bin)(\.[0-9a-f-]+)?$/.exec(
        name,
      );
    if (!known) continue; // not ours to remove
    const limit = known[1] === undefined ? STALE_MS : ABANDONED_MS;
    const file = path.join(folder, name);
    const age = Date.now() - (fs.lstatSync(file, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
    if (age > limit) fs.rmSync(file, { force: true });
  }
}

export interface FileFacts {
  readonly uid: number;
  readonly names: number;
  readonly mode: number;
  readonly isFile: boolean;
}

export function facts(stats: fs.Stats): FileFacts {
  const { uid, nlink: names } = stats;
  return { uid, names, mode: stats.mode & 0o7777, isFile: stats.isFile() };
}

export function ownUid(): number {
  return process.geteuid!(); // where there are users: Linux
}

function octal(mode: number): string {
  return mode.toString(8);
}
