// Node's implementation of download.ts: cache folder, part files, locks, npm's configuration.
//
// A lock is a file made with O_EXCL that holds the owner's pid and is touched while it is held. It counts as abandoned
// when the owner's process is gone (same host) or when it was not touched for a minute.

import { execFile } from "node:child_process";
import { createReadStream, existsSync, readFileSync } from "node:fs";
import * as fs from "node:fs/promises";
import { hostname, totalmem } from "node:os";
import * as path from "node:path";
import { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { SourceError } from "../base/errors.ts";
import { withoutEnd } from "../base/without-end.ts";
import type {
  AppendFile,
  DownloadPlatform,
  FileFacts,
  FileLock,
  FolderEntry,
  LockHolder,
} from "./download.ts";
import { nodeCrypto } from "./node-builtin.ts";
import { type Environment, modelCacheFolder } from "./node-folders.ts";
import { makeFolders } from "./node-make-folders.ts";
import { homeFolder, orPathError, pathError } from "./node-path-errors.ts";
import {
  makeClosedFolder,
  makePrivateFolder,
  privateFileMode,
  writePrivateText,
} from "./node-private.ts";
import { isRunning } from "./node-process.ts";
import { trustedPackage } from "./node-trusted-path.ts";

/** npm's own default; used if there is no npm to ask, as with the single-file program. */
const publicRegistry = "https://registry.npmjs.org";
/** Advice for when the cache folder cannot be used. */
const cacheHint = "Or set LANTERN_CACHE to another folder";
const lockTouchMs = 10_000;
const lockAbandonedMs = 60_000;

export function nodeDownloadPlatform(env: Environment = process.env): DownloadPlatform {
  let proxyIsSet = false;
  const home = homeFolder();
  const cacheFolder = modelCacheFolder(env, process.platform, home);
  const isInCache = (file: string): boolean =>
    file === cacheFolder || file.startsWith(cacheFolder + path.sep);
  // Gives every system error a message that names the action and the file.
  const said = <T>(what: string, file: string, work: Promise<T>): Promise<T> =>
    orPathError(`file: cannot ${what}`, file, work, isInCache(file) ? cacheHint : undefined);
  return {
    cacheFolder,
    homeFolder: home,
    memoryBytes: totalmem(),
    freeMemoryBytes: () => (process.platform === "darwin" ? totalmem() : process.availableMemory()),
    processId: process.pid,
    isRunning,
    fetch: (...request) => {
      // Not before the first download: it changes the whole process, and open() of a local file must not.
      if (!proxyIsSet) useProxyOf(env);
      proxyIsSet = true;
      return fetch(...request);
    },
    env: (name) => env[name] || undefined,
    join: path.join,
    absolute: (file) => path.resolve(file.replace(/^~(?=$|[\\/])/, home)),
    stat: (file) => said("look at", file, fileFacts(file)),
    listFiles: (folder) => said("list", folder, listFiles(folder)),
    listFolder,
    readText: (file) => said("read", file, fs.readFile(file, "utf8").catch(absent)),
    writeText: (file, text) => said("write", file, writePrivateText(file, text)),
    readChunks,
    openAppend: async (file, length) => {
      const { append, close } = await said("write", file, openAppend(file, length));
      return {
        append: (bytes) => said("write", file, append(bytes)),
        close: () => said("write", file, close()),
      };
    },
    rename: (from, to) => said("rename", from, fs.rename(from, to)),
    remove: (file) => said("remove", file, fs.rm(file, { force: true })),
    removeEmptyFolder: (folder) => fs.rmdir(folder).catch(() => {}),
    makeFolder: async (folder, { closed = false } = {}) => {
      const make = async (): Promise<void> => {
        makePrivateFolder(cacheFolder, env);
        if (closed) makeClosedFolder(folder);
        else makeFolders(folder);
      };
      await said("make the folder", folder, make());
    },
    freeBytes,
    lock: (file) => said("make", file, lockFile(file)),
    digest: (algorithm) => {
      const hash = nodeCrypto().createHash(algorithm);
      return { update: (bytes) => void hash.update(bytes), digest: (form) => hash.digest(form) };
    },
    gunzip,
    npmRegistry: () => npmRegistry(env),
    installedPackageFile,
    sleep: async (ms, signal) => {
      await delay(ms, undefined, signal ? { signal } : {}).catch(() => {});
    },
  };
}

/** Node's fetch ignores HTTPS_PROXY by default, but users who set it expect it to be used. */
function useProxyOf(env: Environment): void {
  const names = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];
  if (!names.some((name) => env[name])) return;
  // Imported, it would load all of fetch() with it, which takes as long as Node itself to start.
  const http: Partial<typeof import("node:http")> = process.getBuiltinModule("node:http");
  const { setGlobalProxyFromEnv } = http; // Node 24.14 and newer
  // A proxy on another machine cannot reach this one's loopback addresses.
  const direct = [env.NO_PROXY ?? env.no_proxy, "localhost,127.0.0.1,[::1]"].filter(Boolean);
  if (setGlobalProxyFromEnv) setGlobalProxyFromEnv({ ...env, NO_PROXY: direct.join() });
  else if (!env.NODE_USE_ENV_PROXY) {
    throw new SourceError(
      `download: HTTPS_PROXY or HTTP_PROXY is set, and Node.js ${process.versions.node} does not use it by itself. Set NODE_USE_ENV_PROXY=1 (Node.js 22.21 and newer), or use a newer Node.js`,
    );
  }
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code === "ENOENT" || error.code === "ENOTDIR") return undefined;
  throw error;
}

async function fileFacts(file: string): Promise<FileFacts | undefined> {
  const facts = await fs.stat(file).catch(absent);
  const modifiedMs = facts?.mtimeMs ?? 0;
  return facts && { bytes: facts.size, folder: facts.isDirectory(), modifiedMs };
}

async function listFiles(folder: string): Promise<string[]> {
  const files: string[] = [];
  const look = async (inside: string): Promise<void> => {
    // Unreadable subfolders are skipped; the others still count.
    const ignored = inside === "" ? absent : () => undefined;
    const entries = await fs
      .readdir(path.join(folder, inside), { withFileTypes: true })
      .catch(ignored);
    for (const entry of entries ?? []) {
      const name = inside === "" ? entry.name : `${inside}/${entry.name}`;
      if (entry.isDirectory()) await look(name);
      else if (entry.isFile() || entry.isSymbolicLink()) files.push(name);
    }
  };
  await look("");
  return files.sort((a, b) => (a < b ? -1 : 1));
}

async function listFolder(folder: string): Promise<FolderEntry[] | undefined> {
  const names = await fs.readdir(folder).catch(() => undefined);
  if (!names) return undefined;
  const entries = await Promise.all(
    names.map(async (name) => {
      // Links are followed; unreadable entries and dead links are left out.
      const facts = await fs.stat(path.join(folder, name)).catch(() => undefined);
      return facts && { name, folder: facts.isDirectory(), bytes: facts.size };
    }),
  );
  return entries.filter((entry) => entry !== undefined);
}

async function* readChunks(file: string): AsyncIterable<Uint8Array> {
  try {
    yield* createReadStream(file, { highWaterMark: 1 << 20 });
  } catch (error) {
    throw pathError("file: cannot read", file, error);
  }
}

async function openAppend(file: string, length: number): Promise<AppendFile> {
  const handle = await fs.open(file, "a");
  await handle.truncate(length).catch(async (error: unknown) => {
    await handle.close().catch(() => {});
    throw error;
  });
  return {
    append: async (bytes) => {
      // A write may be short (a nearly full disk): write the rest, or let the error surface.
      for (let done = 0; done < bytes.length; ) {
        done += (await handle.write(bytes, done, bytes.length - done)).bytesWritten;
      }
    },
    close: async () => {
      try {
        await handle.sync();
      } finally {
        await handle.close();
      }
    },
  };
}

async function freeBytes(folder: string): Promise<number | undefined> {
  try {
    const facts = await fs.statfs(folder);
    return facts.bavail * facts.bsize;
  } catch {
    return undefined; // some network and virtual file systems do not report it
  }
}

async function* gunzip(source: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
  const gzip = process.getBuiltinModule("node:zlib").createGunzip();
  const input = Readable.from(source);
  input.on("error", (error) => gzip.destroy(error)); // pipe() does not pass errors on
  try {
    yield* input.pipe(gzip) as AsyncIterable<Uint8Array>;
  } finally {
    input.destroy();
  }
}

async function npmRegistry(env: Environment): Promise<string> {
  // npm sets this for programs it starts (npm start, npx); otherwise ask npm itself (.npmrc files).
  const configured = env.npm_config_registry || env.NPM_CONFIG_REGISTRY || (await askNpm());
  return withoutEnd(configured ?? publicRegistry, "/");
}

function askNpm(): Promise<string | undefined> {
  const windows = process.platform === "win32"; // npm is a .cmd there, which only a shell can start
  return new Promise((resolve) => {
    const args = ["config", "get", "registry"];
    execFile("npm", args, { shell: windows, timeout: 20_000 }, (error, stdout) => {
      const address = stdout.trim();
      resolve(!error && /^https?:\/\//.test(address) ? address : undefined);
    });
  });
}

function installedPackageFile(name: string, version: string, file: string): string | undefined {
  const root = trustedPackage(name);
  if (root === undefined) return undefined;
  try {
    const found: unknown = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
    if ((found as { version?: unknown }).version !== version) return undefined;
  } catch {
    return undefined;
  }
  const full = path.join(root, file);
  return existsSync(full) ? full : undefined;
}

async function lockFile(file: string): Promise<FileLock | LockHolder> {
  const token = nodeCrypto().randomUUID();
  for (let attempt = 0; attempt < 5; attempt++) {
    const mine = { pid: process.pid, host: hostname(), since: new Date().toISOString(), token };
    try {
      await fs.writeFile(file, JSON.stringify(mine), { flag: "wx", mode: privateFileMode });
      return heldLock(file);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
    const holder = await livingHolder(file);
    if (holder) return holder;
    // Abandoned. Of several processes that see this at once, only one can rename the file away.
    const aside = `${file}.${token}`;
    const moved = await fs.rename(file, aside).then(() => true, absent);
    if (moved && (await livingHolder(aside))) {
      // Another process took the lock over between our check and our rename: give it back.
      await fs.link(aside, file).catch(() => {});
    }
    await fs.rm(aside, { force: true });
  }
  return (await livingHolder(file)) ?? { pid: 0, since: "just now" };
}

function heldLock(file: string): FileLock {
  const touch = setInterval(() => {
    const now = new Date();
    fs.utimes(file, now, now).catch(() => {});
  }, lockTouchMs);
  touch.unref();
  return {
    release: async () => {
      clearInterval(touch);
      // A lock file that stays is taken over after this process has ended.
      await fs.rm(file, { force: true }).catch(() => {});
    },
  };
}

/** The holder of the lock; undefined if it is free or abandoned. */
async function livingHolder(file: string): Promise<LockHolder | undefined> {
  const facts = await fs.stat(file).catch(absent);
  if (!facts || Date.now() - facts.mtimeMs > lockAbandonedMs) return undefined;
  let owner: { pid: number; host: string; since: string };
  try {
    owner = JSON.parse(await fs.readFile(file, "utf8")) as typeof owner;
  } catch {
    return { pid: 0, since: "just now" }; // just created, not written yet
  }
  if (owner.host === hostname() && !isRunning(owner.pid)) return undefined;
  return { pid: owner.pid, since: owner.since };
}
