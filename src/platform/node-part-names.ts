// Names of files that are being written: ".NAME.WHERE-PROCESS-RANDOM.part" in the folder of the final file. The name
// says whose part it is: a part of a killed process is removed when the next one writes the same file, and a part of a
// living process is left alone.

import { createHash, randomBytes } from "node:crypto";
import { readlinkSync } from "node:fs";
import * as fs from "node:fs/promises";
import { hostname } from "node:os";
import * as path from "node:path";
import { isRunning } from "./node-process.ts";

const DAY_MS = 24 * 3600 * 1000;
/** File names have at most 255 bytes on most disks; the prefix and suffix of a part take 35. */
const mostNameBytes = 200;

/** A new part name for this file. */
export function partOf(place: string): string {
  const random = randomBytes(4).toString("hex");
  const name = `${beginningOf(place)}${whereWeAre()}-${process.pid}-${random}.part`;
  return path.join(path.dirname(place), name);
}

/** Removes parts of this file that nobody writes any more. A failure to remove one does not stop the write. */
export async function removeDeadParts(place: string): Promise<void> {
  const folder = path.dirname(place);
  const names = await fs.readdir(folder).catch(() => []);
  for (const name of names.filter((each) => each.startsWith(beginningOf(place)))) {
    const part = path.join(folder, name);
    if (await isDead(part, name.slice(beginningOf(place).length))) {
      await fs.rm(part, { force: true }).catch(() => {});
    }
  }
}

async function isDead(part: string, rest: string): Promise<boolean> {
  const known = /^([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.part$/.exec(rest);
  // Lantern 0.1 named them by a UUID alone.
  if (!known && !/^[0-9a-f-]{36}\.part$/.test(rest)) return false;
  const facts = await fs.lstat(part).catch(() => undefined);
  if (!facts) return false; // another process removed it first
  // A part of another machine, about which nothing is known: a part that did not change for a day is abandoned.
  if (known?.[1] !== whereWeAre()) return Date.now() - facts.mtimeMs > DAY_MS;
  const processId = Number(known[2]);
  if (processId !== process.pid) return !isRunning(processId);
  // A part of this process (perhaps another thread's), unless it is older: process ids are reused, in containers
  // nearly always.
  return facts.mtimeMs < performance.timeOrigin;
}

function beginningOf(place: string): string {
  let name = path.basename(place);
  while (Buffer.byteLength(name) > mostNameBytes) name = name.slice(0, -1);
  return `.${name}.`;
}

let here: string | undefined;

/** The machine and, on Linux, the container: process ids mean nothing elsewhere. */
export function whereWeAre(): string {
  if (here === undefined) {
    let processes = "";
    try {
      processes = readlinkSync("/proc/self/ns/pid");
    } catch {
      // another system: all processes of a machine see each other
    }
    const text = `${hostname()} ${processes}`;
    here = createHash("sha256").update(text).digest("hex").slice(0, 8);
  }
  return here;
}
