// Browser Files (and any Blob): a ByteSource over slices, and the ModelSource of the files that a user picked or
// dropped.
//
// Slices are streamed into the caller's memory, so a tensor of a gigabyte never exists twice.

import { messageOf, SourceError } from "../../base/errors.ts";
import type { ByteSource, ModelSource } from "../platform.ts";
import { checkOpen, checkPlainName, checkRange } from "./checks.ts";

class BlobSource implements ByteSource {
  readonly name: string;
  readonly size: number;
  readonly #blob: Blob;
  #closed: boolean = false;

  constructor(name: string, blob: Blob) {
    this.name = name;
    this.size = blob.size;
    this.#blob = blob;
  }

  async read(offset: number, length: number): Promise<Uint8Array<ArrayBuffer>> {
    checkRange(this.name, this.size, offset, length);
    const target = new Uint8Array(length);
    await this.readInto(offset, target);
    return target;
  }

  async readInto(offset: number, target: Uint8Array): Promise<void> {
    checkOpen(this.name, this.#closed);
    checkRange(this.name, this.size, offset, target.byteLength);
    const slice = this.#blob.slice(offset, offset + target.byteLength);
    let done = 0;
    try {
      const reader = slice.stream().getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        target.set(part.value, done);
        done += part.value.byteLength;
      }
    } catch (error) {
      // A file that changed on disk after it was picked can no longer be read.
      throw new SourceError(
        `${this.name}: reading ${target.byteLength} bytes at ${offset} failed: ${messageOf(error)}`,
        { cause: error },
      );
    }
    if (done !== target.byteLength) {
      throw new SourceError(
        `${this.name}: read ${done} bytes at ${offset}, expected ${target.byteLength}`,
      );
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
  }
}

/** A Blob as a file that can be read at any offset. */
export function blobSource(name: string, blob: Blob): ByteSource {
  return new BlobSource(name, blob);
}

/** The model that a list of Files makes up: one GGUF, its splits, a Hugging Face folder's files, a llama2.c pair. */
export function filesModelSource(files: readonly File[]): ModelSource {
  if (files.length === 0) throw new SourceError("no files were given; expected at least one");
  const name =
    files.length === 1 ? files[0]!.name : `${files[0]!.name} and ${files.length - 1} more`;
  const byName = new Map<string, File>();
  for (const file of files) {
    if (byName.has(checkPlainName(file.name, name))) {
      throw new SourceError(`${name}: two files are called ${JSON.stringify(file.name)}`);
    }
    byName.set(file.name, file);
  }
  return {
    name,
    main: files.length === 1 ? files[0]!.name : undefined,
    has: async (file) => byName.has(checkPlainName(file, name)),
    open: async (file) => {
      const found = byName.get(checkPlainName(file, name));
      if (found) return blobSource(file, found);
      throw new SourceError(
        `${name}: there is no file ${JSON.stringify(file)} among ${[...byName.keys()].join(", ")}`,
      );
    },
    list: async () => [...byName.keys()].sort(),
  };
}
