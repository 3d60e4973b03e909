// Checks optional packages in Node before they are loaded: `import("webgpu")` takes the first in a node_modules folder of any
// parent folder, and any user who may make such a folder would have their code run here. Only users who could change Lantern itself
// may be able to change a package; every level of its path counts, links and the folders that they lead through included.
//
// bin/trusted-path.js is the same check for the launcher, which an old Node must be able to parse; one test holds both.

import * as fs from "node:fs";
import * as path from "node:path";
import { UsageError } from "../base/errors.ts";
import { embeddedFiles } from "./node-embedded.ts";
import { ownFolder } from "./node-own-folder.ts";

interface Level {
  readonly place: string;
  readonly facts: fs.Stats;
}

const mostLinks = 40;

/** Throws a UsageError if import(name) would load code that others could have put there. */
export function checkPackage(name: string): void {
  if (embeddedFiles()) return; // the single-file program loads no package from a disk
  const folder = installedPackage(name);
  // Found in another way (Plug'n'Play, Deno), or not at all: import() says so.
  const why = folder && whyUntrusted(path.join(folder, "package.json"), ownFolder());
  if (why) throw new UsageError(`the npm package "${name}" is not loaded: ${why}`);
}

/** The folder of a package that import() would find from here, if no other user could have put it there. */
export function trustedPackage(name: string): string | undefined {
  const folder = embeddedFiles() ? undefined : installedPackage(name);
  if (!folder || whyUntrusted(folder, ownFolder()) !== undefined) return undefined;
  return folder;
}

function installedPackage(name: string): string | undefined {
  for (let above = ownFolder(); ; above = path.dirname(above)) {
    const folder = path.join(above, "node_modules", name);
    if (path.basename(above) !== "node_modules" && fs.existsSync(path.join(folder, "package.json")))
      return folder;
    if (above === path.dirname(above)) return undefined;
  }
}

/**
 * The reason why the file or folder is not used, as a sentence; undefined: it can be trusted as much as Lantern's own folder can.
 * Trusted are root, this user, and the owner of Lantern's folder; and the groups that may write on the way to it.
 */
export function whyUntrusted(place: string, own: string): string | undefined {
  if (!process.getuid) return undefined; // Windows has neither owners nor modes here
  const ours = levelsTo(own);
  const users = [0, process.getuid(), ours.at(-1)!.facts.uid];
  const groups = ours.filter((level) => maySet(level, 0o020)).map(({ facts }) => facts.gid);
  for (const level of levelsTo(place)) {
    const { uid, gid, mode } = level.facts;
    if (!users.includes(uid)) {
      return `${place} is not used: ${level.place} belongs to another user (${uid})`;
    }
    if (maySet(level, 0o002) || (maySet(level, 0o020) && !groups.includes(gid))) {
      return `${place} is not used: others may change ${level.place} (mode ${(mode & 0o7777).toString(8)}): chmod go-w`;
    }
  }
  return undefined;
}

/**
 * Whether the mode lets others change it. In a folder like /tmp (sticky) everybody may write, but not rename another user's files.
 */
function maySet({ facts }: Level, bit: number): boolean {
  if (facts.isSymbolicLink()) return false; // its mode has no effect
  const isSticky = facts.isDirectory() && (facts.mode & 0o1000) !== 0;
  return (facts.mode & bit) !== 0 && !isSticky;
}

/** The levels that decide the file at the path: every folder on the way, every link, and the final file. */
function levelsTo(asked: string): Level[] {
  let place = path.parse(asked).root;
  const levels: Level[] = [{ place, facts: fs.lstatSync(place) }];
  const left = asked.slice(place.length).split("/");
  let links = 0;
  while (left.length > 0) {
    const name = left.shift()!;
    if (name === "" || name === ".") continue;
    const next = path.join(place, name);
    const facts = fs.lstatSync(next);
    levels.push({ place: next, facts });
    if (!facts.isSymbolicLink()) {
      place = next;
      continue;
    }
    if (++links > mostLinks) throw new Error(`${asked} has more than ${mostLinks} links`);
    const target = fs.readlinkSync(next);
    if (path.isAbsolute(target)) place = path.parse(target).root;
    left.unshift(...target.split("/"));
  }
  return levels;
}
