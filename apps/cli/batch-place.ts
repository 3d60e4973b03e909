// The paths of files and batches: a database, and a folder beside it for the bytes of the files.

import type { Database } from "../../src/platform/database.ts";
import { type NodeDatabaseOptions, openNodeDatabase } from "../../src/platform/node-database.ts";
import { nodeFileFolder } from "../../src/platform/node-file-folder.ts";
import type { FileFolder } from "../batch/file-folder.ts";

export interface BatchPlace {
  readonly open: (options?: NodeDatabaseOptions) => Database;
  readonly folder: FileFolder;
}

/** "batches.db" has its files in "batches-files". `otherwise`: the advice of the error when the database is in use. */
export function batchPlace(file: string, otherwise?: string): BatchPlace {
  return {
    open: (options) =>
      openNodeDatabase(file, { ...options, ...(otherwise !== undefined && { otherwise }) }),
    folder: nodeFileFolder(`${file.replace(/\.db$/, "")}-files`),
  };
}
