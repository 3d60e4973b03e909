// Stored state in Node: files of mode 0600 in folders of mode 0700 under the cache folder, because they hold conversations.

import * as fs from "node:fs/promises";
import * as path from "node:path";
import { crc32 } from "node:zlib";
import { SourceError } from "../base/errors.ts";
import type { BlockFolder, BlockFolders, BlockReader, BlockWriter } from "./block-files.ts";
import { type Environment, smallFilesFolder } from "./node-folders.ts";
import { homeFolder, pathReasonOf } from "./node-path-errors.ts";
import { makeClosedFolder, makePrivateFolder, privateFileMode } from "./node-private.ts";

const isOurName = /^[0-9a-f]{32}$/;

/** `folder`: default: "state" in the cache folder. */
export function nodeBlockFolders(folder?: string, env: Environment = process.env): BlockFolders {
  const own = smallFilesFolder(env, process.platform, homeFolder());
  const root = folder ?? path.join(own, "state");
  return {
    path: root,
    names: async () => {
      const entries = await fs.readdir(root, { withFileTypes: true }).catch(() => []);
      // Ours are named by a hash. Others in a folder that the user named are neither looked into nor removed.
      const own = entries.filter((entry) => entry.isDirectory() && isOurName.test(entry.name));
      return own.map(({ name }) => name);
    },
    folder: async (name) => {
      const place = path.join(root, name);
      const make = (): void => {
        if (folder === undefined) makePrivateFolder(own, env);
        if (folder === undefined) makeClosedFolder(root);
        makeClosedFolder(place);
      };
      await inWords(place, async () => make());
      return nodeFolder(place, make);
    },
    remove: (name) => {
      const place = path.join(root, name);
      // A name comes from names(): a path would lead elsewhere.
      if (!isOurName.test(name)) return Promise.resolve();
      return inWords(place, () => fs.rm(place, { recursive: true, force: true }));
    },
    freeBytes: async () => {
      // The nearest folder that exists.
      for (let at = root; ; at = path.dirname(at)) {
        const facts = await fs.statfs(at).catch(() => undefined);
        if (facts) return facts.bavail * facts.bsize;
        if (path.dirname(at) === at) return undefined;
      }
    },
    crc32,
  };
}

/** `make`: makes the folder again, if it was removed. */
function nodeFolder(place: string, make: () => void): BlockFolder {
  const at = (name: string) => path.join(place, name);
  return {
    path: place,
    list: async () => {
      const names = await fs.readdir(place).catch(() => []);
      const facts = await Promise.all(
        names.map(async (name) => ({
          name,
          stat: await fs.lstat(at(name)).catch(() => undefined),
        })),
      );
      return facts.flatMap(({ name, stat }) =>
        stat?.isFile() ? { name, bytes: stat.size, usedAt: stat.mtimeMs } : [],
      );
    },
    create: (name) =>
      inWords(at(name), async () => {
        make();
        return writer(await fs.open(at(name), "wx+", privateFileMode), at(name));
      }),
    open: async (name) => {
      const handle = await fs.open(at(name), "r").catch(() => undefined);
      return handle && reader(handle);
    },
    change: (name) =>
      inWords(at(name), async () => {
        try {
          return writer(await fs.open(at(name), "r+"), at(name));
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
          throw error;
        }
      }),
    touch: async (name) => {
      const now = new Date();
      await fs.utimes(at(name), now, now).catch(() => undefined);
    },
    remove: (name) => inWords(at(name), () => fs.rm(at(name), { force: true })),
  };
}

function reader(handle: fs.FileHandle): BlockReader {
  return {
    read: async (offset, target) => {
      let done = 0;
      while (done < target.length) {
        const { bytesRead } = await handle.read(target, done, target.length - done, offset + done);
        if (bytesRead === 0) break;
        done += bytesRead;
      }
      return done;
    },
    readPieces: async (offset, targets) => {
      let done = 0;
      for (let left = targets; left.length > 0; ) {
        const { bytesRead } = await handle.readv(left, offset + done);
        if (bytesRead === 0) break;
        done += bytesRead;
        left = after(left, bytesRead);
      }
      return done;
    },
    close: () => handle.close(),
  };
}

/** The rest of pieces after their first bytes. */
function after(pieces: readonly Uint8Array[], bytes: number): Uint8Array[] {
  let skipped = bytes;
  return pieces.flatMap((piece) => {
    const here = Math.min(piece.length, skipped);
    skipped -= here;
    return here === piece.length ? [] : piece.subarray(here);
  });
}

function writer(handle: fs.FileHandle, name: string): BlockWriter {
  return {
    ...reader(handle),
    write: (offset, ...pieces) =>
      inWords(name, async () => {
        let done = 0;
        for (let left: readonly Uint8Array[] = pieces; left.length > 0; ) {
          const { bytesWritten } = await handle.writev(left, offset + done);
          done += bytesWritten;
          left = after(left, bytesWritten);
        }
      }),
    truncate: (size) => inWords(name, () => handle.truncate(size)),
    sync: () => inWords(name, () => handle.datasync()),
  };
}

async function inWords<T>(name: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw new SourceError(`${name}: ${pathReasonOf(error)}`, { cause: error });
  }
}
