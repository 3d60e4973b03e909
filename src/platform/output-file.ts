// A file that a tool writes from start to end, atomically. node-output-file.ts implements it; a browser has none
// (there, tools write into a sink that the page provides).

import { UsageError } from "../base/errors.ts";

export interface OutputFile {
  write(bytes: Uint8Array): Promise<void>;
  /** Call when everything is written: renames the file to its final name. */
  finish(): Promise<void>;
  /** Removes the written part; an existing file stays as it was. Does nothing after finish(). */
  discard(): Promise<void>;
}

export interface OutputFileOptions {
  /** Whether an existing file may be replaced: any, or only those of a kind. */
  replace: boolean | OwnFiles;
  /** Whether only this user may read it. Default: as the system does. */
  isPrivate?: boolean;
  /** The final size, if known: a disk without enough room is refused immediately. */
  bytes?: number;
  /** Inputs that are being read: none of them may be replaced, at any value of `replace`. */
  inputs: readonly InputFiles[];
}

/** Files of one kind, known by their first bytes. Nothing else is replaced by one, links, folders and pipes included. */
export interface OwnFiles {
  /** "saved state of Lantern" */
  readonly what: string;
  /** The number of bytes that are looked at. */
  readonly bytes: number;
  isOwn(first: Uint8Array): boolean;
}

/** A model's path (a file or a folder), and the files of its folder that were read. */
export interface InputFiles {
  path: string;
  files: readonly string[];
}

export type CreateOutputFile = (path: string, options: OutputFileOptions) => Promise<OutputFile>;

/** Writes to a path, which gets its name after the last byte and is removed if something fails; or into a sink. */
export async function writeOutput<T>(
  output: string | Pick<OutputFile, "write">,
  create: CreateOutputFile | undefined,
  options: OutputFileOptions,
  write: (sink: Pick<OutputFile, "write">) => Promise<T>,
): Promise<T> {
  if (typeof output !== "string") return await write(output);
  if (!create) {
    throw new UsageError(
      "output: this platform, a browser, cannot write to a path. Give an object with a write() method",
    );
  }
  const file = await create(output, options);
  try {
    const result = await write(file);
    await file.finish();
    return result;
  } finally {
    await file.discard();
  }
}
