// Output files in Node (the interface is output-file.ts): written under another name in the same folder, then renamed.
//
// A reader sees the old file or the new one; node-replace.ts says what may be replaced. Nothing is left behind after an error or Ctrl-C. A process that is killed
// leaves its ".part" file, which the next one that writes the same file removes.

import { rmSync, type Stats } from "node:fs";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { SourceError, UsageError } from "../base/errors.ts";
import { partOf, removeDeadParts } from "./node-part-names.ts";
import { pathError } from "./node-path-errors.ts";
import { privateFileMode } from "./node-private.ts";
import { publish, refuseForeign, refuseInput } from "./node-replace.ts";
import type {
  CreateOutputFile,
  InputFiles,
  OutputFile,
  OutputFileOptions,
  OwnFiles,
} from "./output-file.ts";

export const createNodeOutputFile: CreateOutputFile = async (asked, options) => {
  const place = await placeOf(asked, options);
  const part = partOf(place);
  const mode = options.isPrivate ? privateFileMode : undefined;
  const handle = await fs.open(part, "wx", mode).catch((error) => fail("create", asked, error));
  const own = typeof options.replace === "object" ? options.replace : undefined;
  return new NodeOutputFile({ asked, place, part, own }, handle);
};

interface Names {
  readonly asked: string;
  readonly place: string;
  readonly part: string;
  /** The files that may be replaced, if not all may. */
  readonly own: OwnFiles | undefined;
}

class NodeOutputFile implements OutputFile {
  readonly #asked: string;
  readonly #place: string;
  readonly #own: OwnFiles | undefined;
  readonly #part: string;
  readonly #handle: fs.FileHandle;
  #state: "open" | "finished" | "discarded" = "open";
  // A second Ctrl-C ends the process immediately, without a call of discard().
  readonly #atExit = (): void => rmSync(this.#part, { force: true });

  constructor({ asked, place, part, own }: Names, handle: fs.FileHandle) {
    this.#asked = asked;
    this.#place = place;
    this.#own = own;
    this.#part = part;
    this.#handle = handle;
    process.once("exit", this.#atExit);
  }

  async write(bytes: Uint8Array): Promise<void> {
    try {
      // A write may be short (a nearly full disk): write the rest, or let the error surface.
      for (let done = 0; done < bytes.length; ) {
        done += (await this.#handle.write(bytes, done, bytes.length - done)).bytesWritten;
      }
    } catch (error) {
      fail("write", this.#asked, error);
    }
  }

  async finish(): Promise<void> {
    try {
      await this.#handle.sync();
      await this.#handle.close();
      if (this.#own) publish(this.#part, this.#place, this.#own);
      else await fs.rename(this.#part, this.#place);
    } catch (error) {
      fail("write", this.#asked, error);
    }
    this.#state = "finished";
    process.off("exit", this.#atExit);
  }

  async discard(): Promise<void> {
    if (this.#state !== "open") return;
    this.#state = "discarded";
    await this.#handle.close().catch(() => {}); // it may be closed already: finish() can fail after that
    // The earlier error is the one to report; a part that stays is removed by the next process.
    await fs.rm(this.#part, { force: true }).catch(() => {});
    process.off("exit", this.#atExit);
  }
}

/** The path to write: for a link, its target. Refuses files that must not be replaced. */
async function placeOf(asked: string, options: OutputFileOptions): Promise<string> {
  if (asked === "") throw new UsageError("output: got an empty path, expected a file name");
  if (typeof options.replace === "object") refuseForeign(asked, options.replace);
  const there = await statOf(asked);
  if (there) {
    await refuse(asked, there, options);
  } else if (/[/\\]$/.test(asked) || (await statOf(path.dirname(asked)))?.isDirectory() !== true) {
    throw new SourceError(
      `output: "${asked}" cannot be created: there is no folder "${path.dirname(asked)}". Make it first`,
    );
  }
  const place = there
    ? await fs.realpath(asked).catch((error) => fail("look at", asked, error))
    : asked;
  await removeDeadParts(place);
  await checkCapacity(asked, path.dirname(place), options.bytes);
  return place;
}

async function refuse(asked: string, there: Stats, options: OutputFileOptions): Promise<void> {
  if (there.isDirectory()) {
    throw new UsageError(`output: "${asked}" is a folder, expected a file name`);
  }
  if (!there.isFile()) {
    throw new UsageError(`output: "${asked}" is not a regular file. Choose another name`);
  }
  refuseInput(asked, there);
  for (const input of options.inputs) {
    if (!(await isOneOf(there, input))) continue;
    throw new UsageError(
      `output: "${asked}" is a file of the input "${input.path}", which is being read. Choose another name`,
    );
  }
  if (!options.replace) {
    throw new UsageError(
      `output: "${asked}" exists already. Choose another name, or \`replace: true\``,
    );
  }
}

/** Compares files, not names: links and other spellings of a path are the same file. */
async function isOneOf(there: Stats, { path: model, files }: InputFiles): Promise<boolean> {
  const folder = (await statOf(model))?.isDirectory() ? model : path.dirname(model);
  for (const file of [model, ...files.map((name) => path.join(folder, name))]) {
    const input = await statOf(file);
    if (input && input.dev === there.dev && input.ino === there.ino) return true;
  }
  return false;
}

async function checkCapacity(
  asked: string,
  folder: string,
  bytes: number | undefined,
): Promise<void> {
  if (bytes === undefined) return;
  const facts = await fs.statfs(folder).catch(() => undefined); // some file systems do not report it
  if (facts === undefined || facts.bavail * facts.bsize >= bytes) return;
  throw new SourceError(
    `output: "${asked}" needs ${bytes} bytes, but the disk has ${facts.bavail * facts.bsize} left. Free some space, or choose another disk`,
  );
}

async function statOf(file: string): Promise<Stats | undefined> {
  try {
    return await fs.stat(file);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    return fail("look at", file, error);
  }
}

function fail(what: string, file: string, error: unknown): never {
  throw pathError(`output: cannot ${what}`, file, error);
}
