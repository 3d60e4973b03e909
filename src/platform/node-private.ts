// What is this user's alone, in Node: files with mode 0600 in folders with mode 0700, whatever the umask says, and also
// where an older Lantern made them wider. Conversations, measurements and the state of downloads say what somebody does.
//
// Only Lantern's own folders are tightened. A folder that the user named (LANTERN_DATA, LANTERN_CACHE, --sessions) may be
// shared on purpose: it keeps its mode, and what is private in it is closed file by file.

import * as fs from "node:fs";
import * as path from "node:path";
import { type Environment, ownFolders } from "./node-folders.ts";
import { partOf } from "./node-part-names.ts";
import { homeFolder } from "./node-path-errors.ts";

export const privateFileMode: number = 0o600;
const privateFolderMode: number = 0o700;

const openToOthers = 0o077;

/** Makes a folder, and those above it, for this user alone; one that is there already is tightened where it is Lantern's. */
export function makePrivateFolder(folder: string, env: Environment = process.env): void {
  tightenOwn(folder, env);
  fs.mkdirSync(folder, { recursive: true, mode: privateFolderMode });
}

/** Takes others' rights to Lantern's own folder away, if the path is that folder or below it. */
function tightenOwn(place: string, env: Environment): void {
  for (const own of ownFolders(env, process.platform, homeFolder())) {
    const below = path.relative(own, path.resolve(place));
    if (below.startsWith("..") || path.isAbsolute(below)) continue;
    // A link leads to a folder that somebody chose: it is not Lantern's.
    tighten(own, factsOf(fs.lstatSync, own), "folder");
  }
}

/** Makes sure that a file is there, and this user's alone, before something else opens it by its name. */
export function makePrivateFile(file: string): void {
  fs.closeSync(fs.openSync(file, "a", privateFileMode));
  tightenFile(file);
}

/** Takes others' rights to a file away; one that is not there, or not this user's, stays as it is. */
export function tightenFile(file: string): void {
  tighten(file, factsOf(fs.statSync, file), "file");
}

/** A folder that Lantern made and named, in one that may be anybody's: for this user alone. */
export function makeClosedFolder(folder: string): void {
  fs.mkdirSync(folder, { recursive: true, mode: privateFolderMode });
  tighten(folder, factsOf(fs.lstatSync, folder), "folder");
}

/**
 * Writes a text that is this user's alone: whole or not at all, so that a full disk does not cost what was there before.
 * What is no plain file of theirs (a pipe, /dev/stdout, a link that leads nowhere) is written to and keeps its mode.
 */
export async function writePrivateText(file: string, text: string): Promise<void> {
  const there = factsOf(fs.statSync, file);
  const isNew = there === undefined && factsOf(fs.lstatSync, file) === undefined;
  if (!isNew && !(there?.isFile() && isOurs(there))) return await writeInto(file, text);
  const place = isNew ? file : fs.realpathSync(file);
  const part = partOf(place);
  try {
    await fs.promises.writeFile(part, text, { flag: "wx", mode: privateFileMode });
    await fs.promises.rename(part, place);
  } catch (error) {
    await fs.promises.rm(part, { force: true }).catch(() => {});
    // A file that may be written in a folder that may not.
    if (isNew || !["EACCES", "EPERM"].includes(codeOf(error))) throw error;
    await writeInto(file, text);
  }
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

/** undefined: not there, or not to be looked at; whoever opens it will say so. */
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
    // A disk that can only be read, or that has no modes: it stays as it is.
  }
}

function isOurs({ uid }: fs.Stats): boolean {
  return process.getuid === undefined || uid === process.getuid();
}
