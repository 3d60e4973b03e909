// What a download needs of the machine: a cache folder, files that can be appended to, renamed and locked, a network, and
// hashes. node-download.ts provides it; catalog/ is written against this alone, and tests inject failures here
// (a full disk, a server that hangs up).

export interface Digest {
  update(bytes: Uint8Array): void;
  /** May be called once. */
  digest(encoding: "hex" | "base64"): string;
}

/** A file that grows: the .part of a download. */
export interface AppendFile {
  append(bytes: Uint8Array): Promise<void>;
  /** Forces everything to the disk, then closes. */
  close(): Promise<void>;
}

export interface FileLock {
  release(): Promise<void>;
}

/** Who holds a lock, for the message to the one who does not get it. */
export interface LockHolder {
  pid: number;
  since: string;
}

export interface FileFacts {
  bytes: number;
  folder: boolean;
  /** When it was last written, in milliseconds since 1970, where the platform says. */
  modifiedMs?: number;
}

/** One entry of a folder. */
export interface FolderEntry {
  name: string;
  folder: boolean;
  bytes: number;
}

export interface DownloadPlatform {
  /** Where models are kept: the platform's cache folder, or what LANTERN_CACHE says. */
  readonly cacheFolder: string;
  readonly homeFolder: string;
  /** Of the machine, and what programs could still take of it. */
  readonly memoryBytes: number;
  freeMemoryBytes(): number;
  /** This process, and whether another one on this machine still runs. */
  readonly processId: number;
  isRunning(processId: number): boolean;
  readonly fetch: typeof fetch;
  env(name: string): string | undefined;
  join(...parts: string[]): string;
  /** The whole path from the root, whatever folder this process is in; "~" is the home folder. */
  absolute(path: string): string;
  stat(path: string): Promise<FileFacts | undefined>;
  /** All files below a folder, as paths relative to it with "/" between the parts. */
  listFiles(folder: string): Promise<string[]>;
  /** What lies directly in a folder; undefined: it is no folder that this user may read. */
  listFolder(folder: string): Promise<FolderEntry[] | undefined>;
  readText(path: string): Promise<string | undefined>;
  /** For this user alone: what is written here says what somebody does. */
  writeText(path: string, text: string): Promise<void>;
  readChunks(path: string): AsyncIterable<Uint8Array>;
  /** Cuts the file (or creates it) to `length` bytes and opens it for appending. */
  openAppend(path: string, length: number): Promise<AppendFile>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Removes a folder if nothing is in it. */
  removeEmptyFolder(path: string): Promise<void>;
  /** `closed`: for this user alone, also in a cache folder that several share. */
  makeFolder(path: string, options?: { closed?: boolean }): Promise<void>;
  /** Bytes that this user may still write in the folder; undefined where the platform cannot say. */
  freeBytes(folder: string): Promise<number | undefined>;
  /** The lock, or who has it. A lock whose owner died is taken over. */
  lock(path: string): Promise<FileLock | LockHolder>;
  digest(algorithm: "sha256" | "sha512" | "sha1"): Digest;
  gunzip(source: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array>;
  /** The registry that npm is configured with, without a slash at its end. */
  npmRegistry(): Promise<string>;
  /** A file of an installed npm package of exactly this version, if it is installed. */
  installedPackageFile(name: string, version: string, file: string): string | undefined;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}
