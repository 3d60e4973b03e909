// Local files in Node: a ByteSource over a file descriptor, and the ModelSource of a path.
//
// This is the only file of this folder that imports node:*; a browser bundle never reaches it. Reads are positional,
// so several can run on one descriptor at once. Descriptors are used instead of FileHandles because Node ends the
// process when an unclosed FileHandle is garbage collected.

import { close, constants, fstat, open, read } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";
import { SourceError } from "../../base/errors.ts";
import { pathReasonOf } from "../node-path-errors.ts";
import type { ByteSource, ModelSource } from "../platform.ts";
import { checkOpen, checkPlainName, checkRange } from "./checks.ts";

/** One read call of the operating system moves less than 2 GiB; longer reads are split. */
const longestRead = 1 << 30;

const openFile = promisify(open);
const statFile = promisify(fstat);
const readFile = promisify(read);
const closeFile = promisify(close);

/** Closes descriptors that were never closed. */
const forgotten = new FinalizationRegistry<number>((descriptor) => close(descriptor));

class NodeFileSource implements ByteSource {
  readonly name: string;
  readonly size: number;
  readonly #descriptor: number;
  #closed: boolean = false;

  constructor(name: string, size: number, descriptor: number) {
    this.name = name;
    this.size = size;
    this.#descriptor = descriptor;
    forgotten.register(this, descriptor, this);
  }

  get descriptor(): number {
    return this.#descriptor;
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
    let done = 0;
    while (done < target.byteLength) {
      const length = Math.min(longestRead, target.byteLength - done);
      const bytesRead = await this.#readOnce(target, done, length, offset + done);
      if (bytesRead === 0) {
        throw new SourceError(
          `${this.name}: the file ends at byte ${offset + done}, but had ${this.size} bytes when it was opened: it was changed while it was read. Open it again`,
        );
      }
      done += bytesRead;
    }
  }

  async #readOnce(
    target: Uint8Array,
    targetOffset: number,
    length: number,
    position: number,
  ): Promise<number> {
    try {
      return (await readFile(this.#descriptor, target, targetOffset, length, position)).bytesRead;
    } catch (error) {
      throw new SourceError(
        `${this.name}: reading ${length} bytes at ${position} failed: ${pathReasonOf(error)}`,
        {
          cause: error,
        },
      );
    }
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    forgotten.unregister(this);
    await closeFile(this.#descriptor).catch(() => {}); // it was only read: no data is lost
  }
}

/** Opens a regular file for reading at any offset. */
export async function openNodeFile(path: string): Promise<ByteSource> {
  let descriptor: number;
  try {
    // If a pipe has replaced the file, do not wait for a writer (Windows has no such flag).
    descriptor = await openFile(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (error) {
    throw new SourceError(`${path}: cannot be opened: ${pathReasonOf(error)}`, { cause: error });
  }
  const stats = await statFile(descriptor).catch((error: unknown) => pathReasonOf(error));
  if (typeof stats === "string" || !stats.isFile()) {
    await closeFile(descriptor);
    const why =
      typeof stats === "string" ? `cannot be looked at: ${stats}` : "is not a regular file";
    throw new SourceError(`${path}: ${why}`);
  }
  return new NodeFileSource(basename(path), stats.size, descriptor);
}

/** The model at a path: a file with its siblings, or a folder. */
export async function nodeModelSource(path: string): Promise<ModelSource> {
  const kind = await kindOf(path);
  if (kind === undefined) {
    throw new SourceError(
      `${path}: no such file or folder; expected a model file or a folder that holds one`,
    );
  }
  if (kind === "other") throw new SourceError(`${path}: is neither a regular file nor a folder`);
  const folder = kind === "folder" ? path : dirname(path);
  const resolve = (file: string): string => join(folder, checkPlainName(file, path));
  return {
    name: path,
    main: kind === "file" ? basename(path) : undefined,
    has: async (file) => (await kindOf(resolve(file))) === "file",
    open: async (file) => await openNodeFile(resolve(file)),
    list: async () => await listFiles(folder),
  };
}

async function kindOf(path: string): Promise<"file" | "folder" | "other" | undefined> {
  try {
    const stats = await stat(path);
    return stats.isFile() ? "file" : stats.isDirectory() ? "folder" : "other";
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw new SourceError(`${path}: cannot be looked at: ${pathReasonOf(error)}`, { cause: error });
  }
}

/** Plain files and links (a Hugging Face cache consists of links), sorted. */
async function listFiles(folder: string): Promise<string[]> {
  try {
    const entries = await readdir(folder, { withFileTypes: true });
    return entries
      .filter((entry) => entry.isFile() || entry.isSymbolicLink())
      .map((entry) => entry.name)
      .sort();
  } catch (error) {
    throw new SourceError(`${folder}: cannot be listed: ${pathReasonOf(error)}`, { cause: error });
  }
}
