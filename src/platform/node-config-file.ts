// Configuration files of other programs, in Node: read with what is needed to put them back byte for byte, and replaced atomically
// with their mode. A file that is no plain file of this user is refused, and nothing is written.

import * as fs from "node:fs";
import * as path from "node:path";
import { SourceError, UsageError } from "../base/errors.ts";
import { dataFolder } from "./node-folders.ts";
import { makeFolders } from "./node-make-folders.ts";
import { partOf } from "./node-part-names.ts";
import { pathReasonOf } from "./node-path-errors.ts";
import { privateFileMode } from "./node-private.ts";

export interface ConfigFile {
  /** The file itself, where a link leads to it. */
  readonly place: string;
  /** undefined: there is none yet. */
  readonly bytes: Uint8Array | undefined;
  readonly mode: number | undefined;
}

/** A configuration larger than this is something else. */
const mostBytes = 8 * 2 ** 20;

/** Follows links, as the program does that reads it. */
export function readConfigFile(file: string): ConfigFile {
  try {
    const link = fs.lstatSync(file, { throwIfNoEntry: false });
    if (link === undefined) return { place: file, bytes: undefined, mode: undefined };
    if (link.isSymbolicLink() && !fs.existsSync(file)) {
      throw new UsageError(
        `launch: ${file} is a link to ${fs.readlinkSync(file)}, which is not there. Make that file, or remove the link`,
      );
    }
    const place = fs.realpathSync(file);
    const facts = fs.statSync(place);
    if (!facts.isFile()) {
      throw new UsageError(`launch: ${file} is no plain file, expected a text file. Move it away`);
    }
    if (process.getuid && facts.uid !== process.getuid()) {
      throw new UsageError(
        `launch: ${file} belongs to another user (id ${facts.uid}), so it is not changed. Take it over first`,
      );
    }
    if (facts.size > mostBytes) {
      throw new UsageError(
        `launch: ${file} has ${facts.size} bytes, expected at most ${mostBytes}: it is not changed`,
      );
    }
    return { place, bytes: fs.readFileSync(place), mode: facts.mode & 0o7777 };
  } catch (error) {
    throw inWords("read", file, error);
  }
}

/** Rejects before anything is done if a file cannot be written there. */
export function checkConfigPlace(file: string): void {
  let folder = path.dirname(file);
  while (!fs.existsSync(folder) && path.dirname(folder) !== folder) folder = path.dirname(folder);
  try {
    fs.accessSync(folder, fs.constants.W_OK | fs.constants.X_OK);
    if (!fs.statSync(folder).isDirectory()) throw new UsageError(`${folder} is no folder`);
  } catch (error) {
    throw inWords("write", file, error);
  }
}

/** Atomic: a reader sees the old file or the new one. A new file is for this user only, and so are the folders made for it. */
export function writeConfigFile(
  file: string,
  bytes: Uint8Array,
  mode: number = privateFileMode,
): void {
  const part = partOf(file);
  try {
    makeFolders(path.dirname(file), 0o700);
    try {
      fs.writeFileSync(part, bytes, { flag: "wx", mode, flush: true });
      fs.chmodSync(part, mode); // whatever the umask
      fs.renameSync(part, file);
    } catch (error) {
      fs.rmSync(part, { force: true });
      throw error;
    }
  } catch (error) {
    throw inWords("write", file, error);
  }
}

export function removeConfigFile(file: string): void {
  try {
    fs.rmSync(file, { force: true });
  } catch (error) {
    throw inWords("remove", file, error);
  }
}

function inWords(what: string, file: string, error: unknown): Error {
  if (error instanceof UsageError) return error;
  return new SourceError(`launch: cannot ${what} ${file}: ${pathReasonOf(error)}`);
}

/** Where the configurations of other programs are, for this user. */
export interface ConfigPlace {
  readonly home: string;
  readonly system: "linux" | "darwin" | "win32";
  /** Lantern's own folder for a program. */
  own(name: string): string;
}

export function configPlace(env: (name: string) => string | undefined): ConfigPlace {
  const home = env(process.platform === "win32" ? "USERPROFILE" : "HOME");
  if (!home || !path.isAbsolute(home)) {
    throw new UsageError(
      `launch: HOME is ${home ? JSON.stringify(home) : "not set"}, expected the absolute path of the folder where programs keep their settings`,
    );
  }
  const names = ["LANTERN_DATA", "LOCALAPPDATA", "XDG_DATA_HOME"];
  const folder = dataFolder(
    Object.fromEntries(names.map((name) => [name, env(name)])),
    process.platform,
    home,
  );
  const { platform } = process;
  return {
    home,
    system: platform === "win32" || platform === "darwin" ? platform : "linux",
    own: (name) => path.join(folder, "launch", name),
  };
}
