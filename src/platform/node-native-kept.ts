// Generated machine code that is kept from run to run, in the folder of node-native-files.ts and by its rules: the folder and the
// file are checked through descriptors, so that only this user can have written what is read. A hash before the content finds what
// a full disk or a crash left. Whatever cannot be read or written is made again: none of it is an error.

import { createHash } from "node:crypto";
import * as fs from "node:fs";
import * as path from "node:path";
import { makeFolders } from "./node-make-folders.ts";
import { facts, keepFresh, openFolder, ownUid, write } from "./node-native-files.ts";
import type { KeptFiles } from "./platform.ts";

const HASH_BYTES = 32;
const MOST_BYTES = 16 << 20;
/** Read by Lantern, never run as it lies there. */
const MODE = 0o600;

export function keptFiles(folder: string, sources: string): KeptFiles {
  return {
    sources,
    read: (name) => inFolder(folder, (inside) => readWhole(path.join(inside, name))),
    write: (name, content) => {
      inFolder(folder, (inside) => {
        const whole = new Uint8Array(HASH_BYTES + content.length);
        whole.set(hashOf(content));
        whole.set(content, HASH_BYTES);
        write(path.join(inside, name), whole, MODE);
      });
    },
  };
}

/** Undefined: it could not be done, or others could change what is in the folder. */
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
    if (!isOurs || stats.size < HASH_BYTES || stats.size > MOST_BYTES) return undefined;
    const whole = new Uint8Array(stats.size);
    if (fs.readSync(descriptor, whole, 0, whole.length, 0) !== whole.length) return undefined;
    const content = whole.subarray(HASH_BYTES);
    if (Buffer.compare(hashOf(content), whole.subarray(0, HASH_BYTES)) !== 0) return undefined;
    keepFresh(file);
    return content;
  } finally {
    fs.closeSync(descriptor);
  }
}

function hashOf(content: Uint8Array): Buffer {
  return createHash("sha256").update(content).digest();
}
