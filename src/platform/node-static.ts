// A folder whose files a server gives to everybody: `lantern serve --path`. A path of a request becomes a path on disk only here: parts
// that begin with a dot are never served, and what lies outside of the folder after all links were followed is not there.

import { createReadStream } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { join, sep } from "node:path";
import { Readable } from "node:stream";
import { UsageError } from "../base/errors.ts";
import { typeOfFile } from "./node-assets.ts";

interface StaticFile {
  readonly type: string;
  readonly bytes: number;
  readonly modifiedMs: number;
  read(): ReadableStream<Uint8Array>;
}

/** Finds the file of a URL's path (still percent-encoded); undefined: there is none. */
export type StaticFiles = (path: string) => Promise<StaticFile | undefined>;

export async function staticFolder(folder: string): Promise<StaticFiles> {
  const root = await realpath(folder).catch(() => undefined);
  const facts = root === undefined ? undefined : await stat(root).catch(() => undefined);
  if (root === undefined || !facts?.isDirectory()) {
    const got = facts ? "a file" : "nothing that this user can open";
    throw new UsageError(`--path: "${folder}": got ${got}, expected a folder`);
  }
  return async (path) => {
    const parts = partsOf(path);
    if (parts === undefined) return undefined;
    const asked = join(root, ...parts);
    for (const file of path.endsWith("/") ? [join(asked, "index.html")] : [asked]) {
      const found = await realpath(file).catch(() => undefined);
      if (found === undefined || !found.startsWith(root.endsWith(sep) ? root : root + sep))
        continue;
      // A link to a hidden file would show it.
      if (
        found
          .slice(root.length)
          .split(sep)
          .some((part) => part.startsWith("."))
      )
        continue;
      const { size, mtimeMs, isFile } = await factsOf(found);
      if (!isFile) continue;
      return {
        type: typeOfFile(found) ?? "application/octet-stream",
        bytes: size,
        modifiedMs: mtimeMs,
        read: () => Readable.toWeb(createReadStream(found)) as ReadableStream<Uint8Array>,
      };
    }
    return undefined;
  };
}

async function factsOf(file: string) {
  const facts = await stat(file).catch(() => undefined);
  return { size: facts?.size ?? 0, mtimeMs: facts?.mtimeMs ?? 0, isFile: facts?.isFile() ?? false };
}

/** The decoded parts of a path; undefined: one that no file of the folder has. */
function partsOf(path: string): string[] | undefined {
  let parts: string[];
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return undefined; // not UTF-8
  }
  const isWrong = (part: string) => part.startsWith(".") || /[/\\\0:]/.test(part);
  return parts.some(isWrong) ? undefined : parts;
}
