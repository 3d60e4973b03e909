// Where files and batches are kept: a database, and a folder beside it for the bytes of the files.

import type { FileFolder } from "../batch/file-folder.ts";
import type { Database } from "../platform/database.ts";
import { type NodeDatabaseOptions, openNodeDatabase } from "../platform/node-database.ts";
import { nodeFileFolder } from "../platform/node-file-folder.ts";

export interface BatchPlace {
  readonly open: (options?: NodeDatabaseOptions) => Database;
  readonly folder: FileFolder;
}

/** "batches.db" has its files in "batches-files". `otherwise`: what else can be done where it is in use. */
export function batchPlace(file: string, otherwise?: string): BatchPlace {
  return {
    open: (options) =>
      openNodeDatabase(file, { ...options, ...(otherwise !== undefined && { otherwise }) }),
    folder: nodeFileFolder(`${file.replace(/\.db$/, "")}-files`),
  };
}
