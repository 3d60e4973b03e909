// Names of files that are being written: ".NAME.WHERE-PROCESS-RANDOM.part" in the folder of the final file. The name identifies the
// process: a part of a killed process is removed when the next one writes the same file, and a part of a living process is left
// alone.

import { readlinkSync } from "node:fs";
import * as fs from "node:fs/promises";
import { hostname } from "node:os";
import * as path from "node:path";
import { nodeCrypto } from "./node-builtin.ts";
import { isRunning } from "./node-process.ts";

const DAY_MS = 24 * 3600 * 1000;
/** File names have at most 255 bytes on most disks; the prefix and suffix of a part take 35. */
const mostNameBytes = 200;
/** The beginning of a part's name, and the id of its process. */
const partPattern = /^(\..*\.)([0-9a-f]{8}-\d+-[0-9a-f]{8}|[0-9a-f-]{36})\.part$/s;

/** A new part name for this file. */
export function partOf(place: string): string {
  const random = nodeCrypto().randomBytes(4).toString("hex");
  const name = `${beginningOf(place)}${whereWeAre()}-${process.pid}-${random}.part`;
  return path.join(path.dirname(place), name);
}

/** Removes parts of this file that no process writes any more. A failure to remove one does not stop the write. */
export async function removeDeadParts(place: string): Promise<void> {
  await removeDead(path.dirname(place), (of) => of === beginningOf(place));
}

/** The same for all files of a folder: the part of a killed process can be as large as the whole file. */
export async function removeDeadPartsIn(folder: string): Promise<void> {
  await removeDead(folder, () => true);
}

async function removeDead(folder: string, isOurs: (of: string) => boolean): Promise<void> {
  const names = await fs.readdir(folder).catch(() => []);
  for (const name of names) {
    const [, of, whose] = partPattern.exec(name) ?? [];
    if (of === undefined || !isOurs(of)) continue;
    const part = path.join(folder, name);
    if (await isDead(part, whose!)) await fs.rm(part, { force: true }).catch(() => {});
  }
}

async function isDead(part: string, whose: string): Promise<boolean> {
  const facts = await fs.lstat(part).catch(() => undefined);
  if (!facts) return false; // another process removed it first
  const [where, processId] = whose.split("-") as [string, string];
  // A part of another machine, or one that Lantern 0.1 named by a UUID, has an unknown process: it is abandoned if it did not
  // change for a day.
  if (where !== whereWeAre()) return Date.now() - facts.mtimeMs > DAY_MS;
  if (Number(processId) !== process.pid) return !isRunning(Number(processId));
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

/** The machine and, on Linux, the container: process ids are meaningless elsewhere. */
export function whereWeAre(): string {
  if (here === undefined) {
    let processes = "";
    try {
      processes = readlinkSync("/proc/self/ns/pid");
    } catch {
      // another system: all processes of a machine see each other
    }
    const text = `${hostname()} ${processes}`;
    here = nodeCrypto().createHash("sha256").update(text).digest("hex").slice(0, 8);
  }
  return here;
}
