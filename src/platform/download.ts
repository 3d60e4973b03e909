// The machine's interface for downloads: a cache folder, files that can be appended to, renamed and locked, a network, and hashes.
// node-download.ts implements it. catalog/ uses only this interface, and tests inject failures here (a full disk, a server that
// hangs up).

export interface Digest {
  update(bytes: Uint8Array): void;
  /** May be called once. */
  digest(encoding: "hex" | "base64"): string;
}

/** A file that is appended to: the .part of a download. */
export interface AppendFile {
  append(bytes: Uint8Array): Promise<void>;
  /** Flushes everything to the disk, then closes. */
  close(): Promise<void>;
}

export interface FileLock {
  release(): Promise<void>;
}

/** The owner of a lock, for the message to a process that does not get it. */
export interface LockHolder {
  pid: number;
  since: string;
}

export interface FileFacts {
  bytes: number;
  folder: boolean;
  /** Last modification, in milliseconds since 1970, where the platform reports it. */
  modifiedMs?: number;
}

/** One entry of a folder. */
export interface FolderEntry {
  name: string;
  folder: boolean;
  bytes: number;
}

export interface DownloadPlatform {
  /** The folder of models: the platform's cache folder, or LANTERN_CACHE. */
  readonly cacheFolder: string;
  readonly homeFolder: string;
  /** Memory of the machine, and the available part of it. */
  readonly memoryBytes: number;
  freeMemoryBytes(): number;
  /** This process's id, and whether another process on this machine still runs. */
  readonly processId: number;
  isRunning(processId: number): boolean;
  readonly fetch: typeof fetch;
  env(name: string): string | undefined;
  join(...parts: string[]): string;
  /** The absolute path; "~" is the home folder. */
  absolute(path: string): string;
  stat(path: string): Promise<FileFacts | undefined>;
  /** All files below a folder, as relative paths with "/". */
  listFiles(folder: string): Promise<string[]>;
  /** The direct entries of a folder; undefined if it is not a folder that this user may read. */
  listFolder(folder: string): Promise<FolderEntry[] | undefined>;
  readText(path: string): Promise<string | undefined>;
  /** Readable by this user only, because the text may be private. */
  writeText(path: string, text: string): Promise<void>;
  readChunks(path: string): AsyncIterable<Uint8Array>;
  /** Truncates the file (or creates it) to `length` bytes and opens it for appending. */
  openAppend(path: string, length: number): Promise<AppendFile>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Removes a folder if it is empty. */
  removeEmptyFolder(path: string): Promise<void>;
  /** `closed`: for this user only, even in a shared cache folder. */
  makeFolder(path: string, options?: { closed?: boolean }): Promise<void>;
  /** Bytes that this user may still write in the folder; undefined where the platform cannot tell. */
  freeBytes(folder: string): Promise<number | undefined>;
  /** The lock, or its holder. The lock of a dead owner is taken over. */
  lock(path: string): Promise<FileLock | LockHolder>;
  digest(algorithm: "sha256" | "sha512" | "sha1"): Digest;
  gunzip(source: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array>;
  /** The registry that npm is configured with, without a trailing slash. */
  npmRegistry(): Promise<string>;
  /** A file of an installed npm package of exactly this version, if it is installed. */
  installedPackageFile(name: string, version: string, file: string): string | undefined;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}
