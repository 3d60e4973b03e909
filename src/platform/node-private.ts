// Private files in Node: mode 0600 in folders of mode 0700, regardless of the umask, also for files that an older Lantern made with
// wider modes. Conversations, measurements and the state of downloads are private.
//
// Only Lantern's own folders are tightened. A folder that the user named (LANTERN_DATA, LANTERN_CACHE, --sessions) may
// be shared on purpose: it keeps its mode, and only the private files in it are closed.

import * as fs from "node:fs";
import * as path from "node:path";
import { type Environment, ownFolders } from "./node-folders.ts";
import { makeFolders } from "./node-make-folders.ts";
import { partOf } from "./node-part-names.ts";
import { homeFolder } from "./node-path-errors.ts";

export const privateFileMode: number = 0o600;
const privateFolderMode: number = 0o700;

const openToOthers = 0o077;

/** Makes a folder and its parents for this user only; an existing one is tightened if it is Lantern's own. */
export function makePrivateFolder(folder: string, env: Environment = process.env): void {
  tightenOwn(folder, env);
  makeFolders(folder, privateFolderMode);
}

/** Removes other users' rights to Lantern's own folder, if the path is that folder or below it. */
function tightenOwn(place: string, env: Environment): void {
  for (const own of ownFolders(env, process.platform, homeFolder())) {
    const below = path.relative(own, path.resolve(place));
    if (below.startsWith("..") || path.isAbsolute(below)) continue;
    // A link leads to a folder that a user chose, so it is not Lantern's.
    tighten(own, factsOf(fs.lstatSync, own), "folder");
  }
}

/** Makes sure that a file exists and is private before something else opens it by name. */
export function makePrivateFile(file: string): void {
  fs.closeSync(fs.openSync(file, "a", privateFileMode));
  tightenFile(file);
}

/** Removes other users' rights to a file; does nothing if it is missing or another user's. */
export function tightenFile(file: string): void {
  tighten(file, factsOf(fs.statSync, file), "file");
}

/** Makes a private folder inside one that may be shared. */
export function makeClosedFolder(folder: string): void {
  makeFolders(folder, privateFolderMode);
  tighten(folder, factsOf(fs.lstatSync, folder), "folder");
}

/**
 * Writes a private text atomically, so that neither a full disk nor a power cut destroys the old text. Anything but a plain file of
 * this user (a pipe, /dev/stdout, a broken link) is written in place and keeps its mode.
 */
export async function writePrivateText(file: string, text: string): Promise<void> {
  const there = factsOf(fs.statSync, file);
  const isNew = there === undefined && factsOf(fs.lstatSync, file) === undefined;
  if (!isNew && !(there?.isFile() && isOurs(there))) return await writeInto(file, text);
  const place = isNew ? file : fs.realpathSync(file);
  const part = partOf(place);
  try {
    await fs.promises.writeFile(part, text, { flag: "wx", mode: privateFileMode, flush: true });
    await fs.promises.rename(part, place);
  } catch (error) {
    await fs.promises.rm(part, { force: true }).catch(() => {});
    // A writable file in a folder that is not writable.
    if (isNew || !["EACCES", "EPERM"].includes(codeOf(error))) throw error;
    await writeInto(file, text);
  }
}

/** Rejects if writePrivateText() could not write there; writes no file. */
export async function checkWritable(file: string): Promise<void> {
  const facts = factsOf(fs.statSync, file);
  if (facts?.isDirectory()) await fs.promises.open(file, "r+"); // says that it is a folder
  await fs.promises.access(facts ? file : path.dirname(file), fs.constants.W_OK);
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? "";
}

async function writeInto(file: string, text: string): Promise<void> {
  const handle = await fs.promises.open(file, "w", privateFileMode);
  try {
    const facts = await handle.stat();
    if (isOurs(facts) && facts.isFile() && (facts.mode & openToOthers) !== 0) {
      await handle.chmod(privateFileMode).catch(() => {}); // not every disk has modes
    }
    await handle.writeFile(text);
  } finally {
    await handle.close();
  }
}

/** undefined: missing or not accessible; opening it will report that. */
function factsOf(look: (place: string) => fs.Stats, place: string): fs.Stats | undefined {
  try {
    return look(place);
  } catch {
    return undefined;
  }
}

function tighten(place: string, facts: fs.Stats | undefined, what: "file" | "folder"): void {
  if (!facts || !isOurs(facts) || (facts.mode & openToOthers) === 0) return;
  if (what === "file" ? !facts.isFile() : !facts.isDirectory()) return;
  try {
    fs.chmodSync(place, facts.mode & 0o700);
  } catch {
    // A read-only disk, or one without modes: leave it.
  }
}

function isOurs({ uid }: fs.Stats): boolean {
  return process.getuid === undefined || uid === process.getuid();
}
