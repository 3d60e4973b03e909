// Generated machine code that is kept from run to run, in the folder of node-native-files.ts and by its rules: the folder and the file
// are checked through descriptors, so that only this user can have written the code that is read. A checksum before the content finds
// the remains of a full disk or a crash. Code that cannot be read or written is made again: that is no error.

import * as fs from "node:fs";
import * as path from "node:path";
import { crc32 } from "node:zlib";
import { makeFolders } from "./node-make-folders.ts";
import { facts, keepFresh, openFolder, ownUid, write } from "./node-native-files.ts";
import type { KeptFiles } from "./platform.ts";

const SUM_BYTES = 4;
const MOST_BYTES = 16 << 20;
/** Read by Lantern, never run as it lies there. */
const MODE = 0o600;

export function keptFiles(folder: string, sources: string): KeptFiles {
  return {
    sources,
    read: (name) => inFolder(folder, (inside) => readWhole(path.join(inside, name))),
    write: (name, content) => {
      inFolder(folder, (inside) => {
        const whole = new Uint8Array(SUM_BYTES + content.length);
        new DataView(whole.buffer).setUint32(0, crc32(content), true);
        whole.set(content, SUM_BYTES);
        write(path.join(inside, name), whole, MODE);
      });
    },
  };
}

/** Undefined: it could not be done, or others could change the folder's contents. */
function inFolder<T>(folder: string, work: (inside: string) => T): T | undefined {
  let above: number | undefined;
  try {
    makeFolders(folder, 0o700);
    const opened = openFolder(folder);
    if ("refused" in opened) return undefined;
    above = opened.descriptor;
    return work(`/proc/self/fd/${above}`);
  } catch {
    return undefined; // missing, a disk that is full or read-only
  } finally {
    if (above !== undefined) fs.closeSync(above);
  }
}

function readWhole(file: string): Uint8Array<ArrayBuffer> | undefined {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = fs.constants;
  const descriptor = fs.openSync(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    const stats = fs.fstatSync(descriptor);
    const { uid, mode, isFile, names } = facts(stats);
    const isOurs = isFile && uid === ownUid() && mode === MODE && names === 1;
    if (!isOurs || stats.size < SUM_BYTES || stats.size > MOST_BYTES) return undefined;
    const whole = new Uint8Array(stats.size);
    if (fs.readSync(descriptor, whole, 0, whole.length, 0) !== whole.length) return undefined;
    const content = whole.subarray(SUM_BYTES);
    if (crc32(content) !== new DataView(whole.buffer).getUint32(0, true)) return undefined;
    keepFresh(file);
    return content;
  } finally {
    fs.closeSync(descriptor);
  }
}
