// Open file descriptors of this process on Linux: which ones lead to a file, and whether one has the expected content.
// Machine code is loaded through them (node-native.ts).

import { fstatSync, readdirSync, readlinkSync, readSync } from "node:fs";

/**
 * A descriptor with exactly the expected content, open until the process ends. The dynamic linker identifies a loaded library by
 * the name "/proc/self/fd/N", and would take another file under that number for the same library.
 */
export type Held = { readonly descriptor: number } | { readonly refused: string };

/** Whether a file has exactly this content. */
export function hasContent(descriptor: number, content: Uint8Array): boolean {
  try {
    if (fstatSync(descriptor).size !== content.length) return false;
    const found = Buffer.allocUnsafe(content.length);
    for (let done = 0; done < found.length; ) {
      const read = readSync(descriptor, found, done, found.length - done, done);
      if (read === 0) return false;
      done += read;
    }
    return found.equals(content);
  } catch {
    return false;
  }
}

/** Descriptors of this process that lead to a file of this name. */
export function descriptorsTo(target: string): number[] {
  try {
    return readdirSync("/proc/self/fd")
      .filter((name) => targetOf(name) === target)
      .map(Number);
  } catch {
    return []; // /proc cannot be read: none is found, and a new one is made
  }
}

function targetOf(name: string): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${name}`);
  } catch {
    return undefined; // closed since
  }
}
