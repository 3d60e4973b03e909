// A folder of files by id, in Node (the interface is apps/batch/file-folder.ts, by shape): each is written under another name and
// renamed when it is whole and on disk, and only this user can read it.

import * as fs from "node:fs/promises";
import * as path from "node:path";
import { SourceError } from "../base/errors.ts";
import { createNodeOutputFile } from "./node-output-file.ts";
import { removeDeadPartsIn } from "./node-part-names.ts";
import { pathError } from "./node-path-errors.ts";
import { makeClosedFolder } from "./node-private.ts";
import type { OutputFile } from "./output-file.ts";

export interface NodeFileFolder {
  readonly place: string;
  create(id: string): Promise<OutputFile>;
  read(id: string, start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  remove(id: string): Promise<void>;
  list(): Promise<readonly string[]>;
}

export function nodeFileFolder(place: string): NodeFileFolder {
  const pathOf = (id: string): string => {
    // Ids are ours, but a row of a database may have been changed by others.
    if (!/^[A-Za-z0-9_-]{1,100}$/.test(id)) {
      throw new SourceError(`file: ${JSON.stringify(id.slice(0, 100))} is not the id of a file`);
    }
    return path.join(place, id);
  };
  return {
    place,
    async create(id) {
      makeClosedFolder(place);
      return await createNodeOutputFile(pathOf(id), { replace: true, inputs: [], isPrivate: true });
    },
    async read(id, start, end) {
      const file = pathOf(id);
      const bytes = new Uint8Array(end - start);
      const handle = await fs.open(file).catch((error) => fail("read", file, error));
      try {
        for (let done = 0; done < bytes.length; ) {
          const { bytesRead } = await handle.read(bytes, done, bytes.length - done, start + done);
          if (bytesRead === 0) {
            throw new SourceError(
              `file: "${file}" ends at byte ${start + done}, expected at least ${end}. Somebody shortened it`,
            );
          }
          done += bytesRead;
        }
      } finally {
        await handle.close();
      }
      return bytes;
    },
    async remove(id) {
      const file = pathOf(id);
      await fs.rm(file, { force: true }).catch((error) => fail("delete", file, error));
    },
    async list() {
      const names = await fs.readdir(place).catch((error: NodeJS.ErrnoException) => {
        if (error.code === "ENOENT") return [];
        return fail("list", place, error);
      });
      await removeDeadPartsIn(place);
      return names.filter((name) => !name.startsWith("."));
    },
  };
}

function fail(what: string, file: string, error: unknown): never {
  throw pathError(`file: cannot ${what}`, file, error);
}
