// Decides whether the file at a path may be run: only users who could change Lantern itself may be able to change it. Every
// level of the path counts, links and their targets included. Plain JavaScript that an old Node can parse, like the launcher;
// src/platform/node-trusted-path.ts is the same for the library, and one test holds both.

"use strict";

// biome-ignore-start lint/style/useNodejsImportProtocol: Node before 12.20 does not know "node:"
const { lstatSync, readlinkSync } = require("fs");
const { isAbsolute, join, parse } = require("path");

// biome-ignore-end lint/style/useNodejsImportProtocol: see above

const mostLinks = 40;

/**
 * The reason why the file or folder is not used, as a sentence; undefined: it can be trusted as much as Lantern's own
 * folder can. Trusted are root, this user, and the owner of Lantern's folder; and the groups that may write on the way
 * to it. Throws if the path does not exist.
 */
function whyUntrusted(path, ownFolder) {
  if (!process.getuid) return undefined; // Windows has neither owners nor modes here
  const own = levelsTo(ownFolder);
  const users = [0, process.getuid(), own[own.length - 1].facts.uid];
  const groups = own.filter((level) => maySet(level, 0o020)).map((level) => level.facts.gid);
  for (const level of levelsTo(path)) {
    const mode = (level.facts.mode & 0o7777).toString(8);
    if (users.indexOf(level.facts.uid) < 0) {
      return `${path} is not used: ${level.place} belongs to another user (${level.facts.uid})`;
    }
    const byGroup = maySet(level, 0o020) && groups.indexOf(level.facts.gid) < 0;
    if (byGroup || maySet(level, 0o002)) {
      return `${path} is not used: others may change ${level.place} (mode ${mode}): chmod go-w`;
    }
  }
  return undefined;
}

/** Whether the mode lets others change it. In a folder like /tmp (sticky) all users may write, but not rename another's files. */
function maySet(level, bit) {
  if (level.facts.isSymbolicLink()) return false; // its mode means nothing
  const isSticky = level.facts.isDirectory() && (level.facts.mode & 0o1000) !== 0;
  return (level.facts.mode & bit) !== 0 && !isSticky;
}

/** The levels that decide about a path: every folder on the way, every link, and the last file. */
function levelsTo(path) {
  const levels = [];
  let links = 0;
  let place = parse(path).root;
  levels.push({ place: place, facts: lstatSync(place) });
  const left = path.slice(place.length).split("/");
  while (left.length > 0) {
    const name = left.shift();
    if (name === "" || name === ".") continue;
    const next = join(place, name);
    const facts = lstatSync(next);
    levels.push({ place: next, facts: facts });
    if (!facts.isSymbolicLink()) {
      place = next;
      continue;
    }
    links += 1;
    if (links > mostLinks) throw new Error(`${path} has more than ${mostLinks} links`);
    const target = readlinkSync(next);
    if (isAbsolute(target)) place = parse(target).root;
    left.unshift.apply(left, target.split("/"));
  }
  return levels;
}

exports.whyUntrusted = whyUntrusted;
