// Small files that outlive the process, in Node: in the cache folder, written beside and renamed, so that whoever reads
// meanwhile sees the old file or the new one.

import { randomUUID } from "node:crypto";
import * as fs from "node:fs/promises";
import { homedir } from "node:os";
import * as path from "node:path";
import { type Environment, smallFilesFolder } from "./node-folders.ts";
import type { SmallFiles } from "./platform.ts";

export function nodeSmallFiles(env: Environment = process.env): SmallFiles {
  const folder = smallFilesFolder(env, process.platform, homedir());
  return {
    place: (name) => path.join(folder, name),
    read: (name) => fs.readFile(path.join(folder, name), "utf8").catch(absent),
    write: async (name, text) => {
      const file = path.join(folder, name);
      const beside = `${file}.${randomUUID()}`;
      await fs.mkdir(folder, { recursive: true });
      try {
        await fs.writeFile(beside, text);
        await fs.rename(beside, file);
      } catch (error) {
        await fs.rm(beside, { force: true });
        throw error;
      }
    },
  };
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code === "ENOENT" || error.code === "ENOTDIR") return undefined;
  throw error;
}
