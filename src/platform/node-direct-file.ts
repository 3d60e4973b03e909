// A local file that is read past the system's cache of files (O_DIRECT, Linux): bytes that are read again and again would displace
// all other files from that cache, and take memory that was promised to others.
//
// The file is opened again by its descriptor, so it is the same file even if its path has changed since.

import { closeSync, constants, fstatSync, openSync, read, readSync } from "node:fs";
import { promisify } from "node:util";
import { SourceError } from "../base/errors.ts";
import { pathReasonOf } from "./node-path-errors.ts";
import type { DirectFile } from "./platform.ts";

/** The folders in which descriptors have paths: Linux and macOS. */
const folders: Readonly<Partial<Record<NodeJS.Platform, string>>> = {
  linux: "/proc/self/fd",
  darwin: "/dev/fd",
};

const readLater = promisify(read);

export function canOpenDirect(): boolean {
  return folders[process.platform] !== undefined;
}

export function openDirect(of: number, buffered: boolean = false): DirectFile {
  const path = `${folders[process.platform]}/${of}`;
  const direct = buffered ? undefined : tryDirect(path);
  const descriptor = direct ?? openBuffered(path);
  const first = fstatSync(descriptor);
  let isOpen = true;
  return {
    descriptor,
    isDirect: direct !== undefined,
    read: async (target, position) =>
      (await readLater(descriptor, target, 0, target.byteLength, position)).bytesRead,
    changed: () => {
      const { size, mtimeMs } = fstatSync(descriptor);
      if (size !== first.size) return `it had ${first.size} bytes and has ${size} now`;
      return mtimeMs === first.mtimeMs ? undefined : "it was written to since it was opened";
    },
    close: () => {
      if (isOpen) closeSync(descriptor);
      isOpen = false;
    },
  };
}

function openBuffered(path: string): number {
  try {
    return openSync(path, constants.O_RDONLY);
  } catch (error) {
    throw new SourceError(`the model's file cannot be opened again: ${pathReasonOf(error)}`, {
      cause: error,
    });
  }
}

/** undefined: this file system has no direct reads. */
function tryDirect(path: string): number | undefined {
  if (!constants.O_DIRECT) return undefined;
  let descriptor: number | undefined;
  try {
    descriptor = openSync(path, constants.O_RDONLY | constants.O_DIRECT);
    // A memory of WebAssembly begins at a page. Some file systems refuse only when they read.
    const { buffer } = new WebAssembly.Memory({ initial: 1, maximum: 1 });
    readSync(descriptor, new Uint8Array(buffer), 0, 4096, 0);
    return descriptor;
  } catch {
    if (descriptor !== undefined) closeSync(descriptor);
    return undefined;
  }
}
