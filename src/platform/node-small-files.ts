// Small files that outlive the process, in Node: in the cache folder, written beside and renamed, so that whoever reads
// meanwhile sees the old file or the new one. They say what runs here and how fast: for this user alone.

import { randomUUID } from "node:crypto";
import * as fs from "node:fs/promises";
import { homedir } from "node:os";
import * as path from "node:path";
import { type Environment, smallFilesFolder } from "./node-folders.ts";
import { makePrivateFolder, privateFileMode, tightenFile } from "./node-private.ts";
import type { SmallFiles } from "./platform.ts";

export function nodeSmallFiles(env: Environment = process.env): SmallFiles {
  const folder = smallFilesFolder(env, process.platform, homedir());
  return {
    place: (name) => path.join(folder, name),
    read: async (name) => {
      const file = path.join(folder, name);
      tightenFile(file); // an older Lantern left it readable
      return await fs.readFile(file, "utf8").catch(absent);
    },
    write: async (name, text) => {
      const file = path.join(folder, name);
      const beside = `${file}.${randomUUID()}`;
      makePrivateFolder(folder, env);
      try {
        await fs.writeFile(beside, text, { mode: privateFileMode });
        await fs.rename(beside, file);
      } catch (error) {
        await fs.rm(beside, { force: true });
        throw error;
      }
    },
  };
}

/** Another user's in a folder that several share is as good as none. */
function absent(error: NodeJS.ErrnoException): undefined {
  if (["ENOENT", "ENOTDIR", "EACCES"].includes(error.code ?? "")) return undefined;
  throw error;
}
