// Files of `lantern batch` in Node: the input with a hash of its bytes, the output, and the folder beside it that holds the answers
// until all are there.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { AbortedError, UsageError } from "../base/errors.ts";
import { createNodeOutputFile } from "./node-output-file.ts";
import { orPathError, pathError } from "./node-path-errors.ts";
import { makeClosedFolder } from "./node-private.ts";
import { noteInput, refuseText } from "./node-replace.ts";
import type { OutputFile } from "./output-file.ts";

export interface HashedInput {
  readonly name: string;
  readonly hash: string;
  pieces(): AsyncIterable<Uint8Array>;
}

/** Reads it once; stops with the signal, also in the middle. */
export async function hashedInput(file: string, signal: AbortSignal): Promise<HashedInput> {
  const facts = await orPathError("batch: cannot read", file, fs.stat(file));
  if (!facts.isFile()) {
    throw new UsageError(`batch: "${file}" is not a regular file, and it is read more than once`);
  }
  noteInput(file);
  const hash = createHash("sha256");
  async function* pieces(): AsyncGenerator<Uint8Array> {
    try {
      yield* createReadStream(file, { signal }) as AsyncIterable<Buffer>;
    } catch (error) {
      if (signal.aborted) throw new AbortedError("the batch", { cause: error });
      throw pathError("batch: cannot read", file, error);
    }
  }
  for await (const piece of pieces()) hash.update(piece);
  return { name: path.basename(file), hash: hash.digest("hex"), pieces };
}

/** The output; neither the input nor another file of this command is replaced, nor anything that is no text. */
export async function createOutput(file: string): Promise<OutputFile> {
  refuseText(file);
  return await createNodeOutputFile(file, { replace: true, inputs: [] });
}

/** "answers.jsonl.batch": the answers so far. */
export function batchFolder(output: string): { database: string; remove(): Promise<void> } {
  const folder = `${path.resolve(output)}.batch`;
  makeClosedFolder(folder);
  return {
    database: path.join(folder, "batch.db"),
    // Removes only our files; other files in the folder stay, and the folder with them.
    remove: async () => {
      for (const name of await fs.readdir(folder).catch(() => [])) {
        if (name !== "batch-files" && !name.startsWith("batch.db")) continue;
        await fs.rm(path.join(folder, name), { recursive: true, force: true });
      }
      await fs.rmdir(folder).catch(() => {});
    },
  };
}
