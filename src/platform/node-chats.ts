// The chats of `lantern chat` as files, one each, in "chats" of the data folder: private, and replaced as a whole, so that a process
// that is killed leaves the chat as it was after the last answer.

import * as fs from "node:fs/promises";
import * as path from "node:path";
import { SourceError } from "../base/errors.ts";
import { dataFolder, type Environment } from "./node-folders.ts";
import { homeFolder, pathReasonOf } from "./node-path-errors.ts";
import { makeClosedFolder, makePrivateFolder, writePrivateText } from "./node-private.ts";

export interface ChatFiles {
  /** For messages. */
  readonly path: string;
  /** The ids, the latest first. */
  ids(): Promise<string[]>;
  /** undefined: there is none. */
  read(id: string): Promise<string | undefined>;
  write(id: string, text: string): Promise<void>;
  remove(id: string): Promise<void>;
}

const suffix = ".json";

export function nodeChatFiles(env: Environment = process.env): ChatFiles {
  const own = dataFolder(env, process.platform, homeFolder());
  const folder = path.join(own, "chats");
  const at = (id: string) => path.join(folder, `${id}${suffix}`);
  return {
    path: folder,
    ids: async () => {
      const names = await fs.readdir(folder).catch(() => []);
      const facts = names
        .filter((name) => /^[\w-]+\.json$/.test(name))
        .map(async (name) => {
          const stat = await fs.stat(path.join(folder, name)).catch(() => undefined);
          return { id: name.slice(0, -suffix.length), at: stat?.mtimeMs ?? 0 };
        });
      const found = await Promise.all(facts);
      return found.toSorted((a, b) => b.at - a.at).map(({ id }) => id);
    },
    read: async (id) => await fs.readFile(at(id), "utf8").catch(() => undefined),
    write: async (id, text) => {
      try {
        makePrivateFolder(own, env);
        makeClosedFolder(folder);
        await writePrivateText(at(id), text);
      } catch (error) {
        throw new SourceError(`${at(id)}: ${pathReasonOf(error)}`, { cause: error });
      }
    },
    remove: async (id) => await fs.rm(at(id), { force: true }),
  };
}
