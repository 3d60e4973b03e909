// Files of `lantern batch` in Node: the input with a hash of its bytes, the output, and the folder beside it that holds what was
// answered until all is.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { UsageError } from "../base/errors.ts";
import { createNodeOutputFile } from "./node-output-file.ts";
import { orPathError } from "./node-path-errors.ts";
import { makeClosedFolder } from "./node-private.ts";
import type { OutputFile } from "./output-file.ts";

export interface HashedInput {
  readonly name: string;
  readonly hash: string;
  /** The "url" of its first request. */
  readonly endpoint: string;
  pieces(): AsyncIterable<Uint8Array>;
}

/** Reads it once. */
export async function hashedInput(file: string): Promise<HashedInput> {
  const hash = createHash("sha256");
  let first = "";
  const read = async (): Promise<void> => {
    for await (const piece of createReadStream(file) as AsyncIterable<Buffer>) {
      hash.update(piece);
      // The first line that is not empty.
      if (!/\S[^\n]*\n/.test(first)) first += piece.toString("latin1");
    }
  };
  await orPathError("batch: cannot read", file, read());
  const endpoint = /"url"\s*:\s*"([^"\\]{1,200})"/.exec(first.trimStart().split("\n", 1)[0]!)?.[1];
  if (endpoint === undefined) {
    throw new UsageError(
      `batch: the first line of "${file}" has no "url", expected {"custom_id", "method": "POST", "url": "/v1/chat/completions", "body"}`,
    );
  }
  return {
    name: path.basename(file),
    hash: hash.digest("hex"),
    endpoint,
    pieces: () => createReadStream(file) as AsyncIterable<Uint8Array>,
  };
}

/** The output; the input is never replaced. */
export async function createOutput(file: string, input: string): Promise<OutputFile> {
  return await createNodeOutputFile(file, {
    replace: true,
    inputs: [{ path: input, files: [] }],
  });
}

/** "answers.jsonl.batch": what was answered so far. */
export function batchFolder(output: string): { database: string; remove(): Promise<void> } {
  const folder = `${path.resolve(output)}.batch`;
  makeClosedFolder(folder);
  return {
    database: path.join(folder, "batch.db"),
    remove: async () => {
      await fs.rm(folder, { recursive: true, force: true });
    },
  };
}
