// Small persistent files in Node: in the cache folder, written under another name and renamed, so that a reader sees the old file
// or the new one. They show which programs run here at which speed, so they are private.

import * as fs from "node:fs/promises";
import * as path from "node:path";
import { SourceError } from "../base/errors.ts";
import { type Environment, smallFilesFolder } from "./node-folders.ts";
import { partOf, removeDeadParts } from "./node-part-names.ts";
import { homeFolder, pathReasonOf } from "./node-path-errors.ts";
import { makePrivateFolder, privateFileMode, tightenFile } from "./node-private.ts";
import type { SmallFiles } from "./platform.ts";

export function nodeSmallFiles(env: Environment = process.env): SmallFiles {
  const folder = smallFilesFolder(env, process.platform, homeFolder());
  return {
    place: (name) => path.join(folder, name),
    read: (name) => {
      const file = path.join(folder, name);
      tightenFile(file); // an older Lantern left it readable
      return inWords(fs.readFile(file, "utf8").catch(absent));
    },
    write: (name, text) => inWords(replaceFile(folder, path.join(folder, name), text, env)),
  };
}

/** The reason alone: the caller names the file. */
async function inWords<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw new SourceError(pathReasonOf(error), { cause: error });
  }
}

async function replaceFile(
  folder: string,
  file: string,
  text: string,
  env: Environment,
): Promise<void> {
  const beside = partOf(file);
  makePrivateFolder(folder, env);
  try {
    await fs.writeFile(beside, text, { mode: privateFileMode });
    await fs.rename(beside, file);
  } catch (error) {
    await fs.rm(beside, { force: true }).catch(() => {}); // the first error is the one to report
    throw error;
  }
  await removeDeadParts(file);
}

/** Another user's file in a shared folder counts as missing. */
function absent(error: NodeJS.ErrnoException): undefined {
  if (["ENOENT", "ENOTDIR", "EACCES"].includes(error.code ?? "")) return undefined;
  throw error;
}
