// SQLite's error codes, and the codes of file errors, as StorageErrors.

import { StorageError } from "./database.ts";
import { pathReasonOf } from "./node-path-errors.ts";

interface SqliteError extends Error {
  errcode: number;
  errstr: string;
}

/** SQLite's primary result codes that concern the machine, not our statements. */
const problems: Readonly<Record<number, { problem: StorageError["problem"]; says: string }>> = {
  5: {
    problem: "busy",
    says: "another process has it open",
  },
  6: { problem: "busy", says: "another connection has it locked. Try again" },
  8: { problem: "read-only", says: "the file or its disk is read-only. Nothing can be saved" },
  10: { problem: "failed", says: "the disk did not answer (input/output error). Check the disk" },
  11: { problem: "corrupt", says: "the file is damaged" },
  13: { problem: "full", says: "the disk is full. Free some space; what was saved is intact" },
  14: {
    problem: "failed",
    says: "the file cannot be opened. Check that the folder can be written",
  },
  26: { problem: "corrupt", says: "the file is not a database" },
};

/** The low byte of an extended code is the primary one. */
function primaryCode(error: SqliteError): number {
  return error.errcode & 0xff;
}

function isSqliteError(error: unknown): error is SqliteError {
  return error instanceof Error && typeof (error as Partial<SqliteError>).errcode === "number";
}

export function toStorageError(error: unknown, path: string, what: string): StorageError {
  if (error instanceof StorageError) return error;
  const options = { cause: error };
  if (isSqliteError(error)) {
    const known = problems[primaryCode(error)];
    const says = known?.says ?? `${error.errstr} (SQLite error ${error.errcode})`;
    return new StorageError(
      known?.problem ?? "failed",
      `database: cannot ${what} "${path}": ${says}`,
      options,
    );
  }
  const { code } = error as NodeJS.ErrnoException;
  const problem =
    code === "ENOSPC" ? "full" : code === "EROFS" || code === "EACCES" ? "read-only" : "failed";
  return new StorageError(
    problem,
    `database: cannot ${what} "${path}": ${pathReasonOf(error)}`,
    options,
  );
}

/** Whether it is about the machine or the file, and not about our statements. */
export function isOfStorage(error: unknown): boolean {
  return isSqliteError(error) && Object.hasOwn(problems, primaryCode(error));
}
