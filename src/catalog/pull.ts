// Downloads one catalog entry into the cache. A file under its final name is always complete and checked: the bytes go
// to <file>.part, are hashed on the way, and the part is renamed when size and sha256 are right.
//
// If the pull is interrupted (Ctrl-C, a lost network, a crash), the part stays, and <file>.part.json names the file that it is a
// part of. The next pull resumes it if the server still has the same file. A lock keeps out a second pull of the same file.

import { AbortedError, SourceError } from "../base/errors.ts";
import type { DownloadPlatform, FileLock } from "../platform/download.ts";
import type { CatalogEntry } from "./catalog.ts";
import { RemoteChangedError } from "./sources/http-body.ts";
import type { RemoteFile } from "./sources/source.ts";
import { sourceKind } from "./sources/table.ts";

export interface PullProgress {
  /** "check" while a part from an earlier run is hashed again, then "download". */
  phase: "check" | "download";
  loadedBytes: number;
  totalBytes: number;
}

export interface PullOptions {
  signal?: AbortSignal;
  onProgress?: (progress: PullProgress) => void;
}

export interface PulledFile {
  path: string;
  bytes: number;
  /** The origin of the file: "installed" (an npm package), "cache" (an earlier pull), "download" (now). */
  from: "installed" | "cache" | "download";
  /** After a download: the file's hash, and its source; "nobody" if only the size was known. */
  sha256?: string;
  statedBy?: string;
  /** After a download: the number of bytes from an earlier, interrupted pull. */
  resumedBytes?: number;
}

/** Free disk space that a download must leave. */
const spareBytes = 64 << 20;

/** A failed download that may succeed if it starts over. */
class StaleDownload extends SourceError {
  override name: string = "StaleDownload";
}

/** The entry's file if no download is needed: installed by npm, or in the cache. */
export async function findLocally(
  entry: CatalogEntry,
  platform: DownloadPlatform,
): Promise<PulledFile | undefined> {
  const installed = sourceKind(entry.source).installed(entry.source, platform);
  if (installed) return { ...installed, from: "installed" };
  const path = platform.join(platform.cacheFolder, ...entry.file.split("/"));
  const facts = await platform.stat(path);
  if (!facts || facts.folder) return undefined;
  // Pulled files get their final name only when complete, but users may copy or truncate files.
  if (entry.sha256 && facts.bytes !== entry.bytes) return undefined;
  return { path, bytes: facts.bytes, from: "cache" };
}

export async function pullEntry(
  entry: CatalogEntry,
  platform: DownloadPlatform,
  options: PullOptions = {},
): Promise<PulledFile> {
  const found = await findLocally(entry, platform);
  if (found) return found;
  const path = platform.join(platform.cacheFolder, ...entry.file.split("/"));
  await platform.makeFolder(platform.join(path, ".."));
  const lock = await takeLock(entry, path, platform);
  try {
    // Another pull may have finished the file while we waited for the lock.
    const finished = await findLocally(entry, platform);
    if (finished) return finished;
    try {
      return await download(entry, path, platform, options);
    } catch (error) {
      const startOver = error instanceof StaleDownload || error instanceof RemoteChangedError;
      if (!startOver) throw error;
      await discardPart(path, platform);
      return await download(entry, path, platform, options);
    }
  } catch (error) {
    if (options.signal?.aborted) {
      throw new AbortedError(`the download of ${entry.name}`, { cause: error });
    }
    throw fullDisk(error, entry, platform) ?? error;
  } finally {
    await lock.release();
  }
}

async function takeLock(
  entry: CatalogEntry,
  path: string,
  platform: DownloadPlatform,
): Promise<FileLock> {
  const lock = await platform.lock(`${path}.lock`);
  if ("release" in lock) return lock;
  throw new SourceError(
    `pull: ${entry.name} is already being downloaded by process ${lock.pid}, since ${lock.since}. Wait until it has finished, then run the command again`,
  );
}

async function download(
  entry: CatalogEntry,
  path: string,
  platform: DownloadPlatform,
  options: PullOptions,
): Promise<PulledFile> {
  const { signal, onProgress } = options;
  const remote = await sourceKind(entry.source).open(entry.source, entry, { platform, signal });
  const part = `${path}.part`;
  const resumedBytes = await resumableBytes(part, remote, platform);
  await checkFreeSpace(entry, part, remote.bytes - resumedBytes, platform);
  await platform.writeText(`${part}.json`, JSON.stringify({ identity: remote.identity }));

  const file = await platform.openAppend(part, resumedBytes);
  const hash = platform.digest("sha256");
  let loadedBytes = 0;
  const report = (phase: PullProgress["phase"], chunk: Uint8Array): void => {
    hash.update(chunk);
    loadedBytes += chunk.length;
    onProgress?.({ phase, loadedBytes, totalBytes: remote.bytes });
  };
  try {
    if (resumedBytes > 0) {
      for await (const chunk of platform.readChunks(part)) {
        report("check", chunk);
        if (signal?.aborted) throw new AbortedError(`the download of ${entry.name}`);
      }
    }
    if (resumedBytes < remote.bytes) {
      for await (const chunk of remote.read(resumedBytes, signal)) {
        await file.append(chunk);
        report("download", chunk);
      }
    }
  } finally {
    await file.close();
  }
  const sha256 = hash.digest("hex");
  await checkResult(entry, part, remote, { bytes: loadedBytes, sha256, resumedBytes }, platform);
  await platform.rename(part, path);
  await platform.remove(`${part}.json`).catch(() => {}); // the model is complete, so this may fail
  const statedBy = remote.sha256?.statedBy ?? "nobody";
  return { path, bytes: loadedBytes, from: "download", sha256, statedBy, resumedBytes };
}

/** The number of bytes of an earlier part that can be kept. */
async function resumableBytes(
  part: string,
  remote: RemoteFile,
  platform: DownloadPlatform,
): Promise<number> {
  const have = await platform.stat(part);
  if (!have) return 0;
  const state = await platform.readText(`${part}.json`);
  if (state !== JSON.stringify({ identity: remote.identity })) return 0;
  return have.bytes > remote.bytes ? 0 : remote.resumeFrom(have.bytes);
}

async function checkFreeSpace(
  entry: CatalogEntry,
  part: string,
  missingBytes: number,
  platform: DownloadPlatform,
): Promise<void> {
  const folder = platform.join(part, "..");
  const free = await platform.freeBytes(folder);
  const needed = missingBytes + spareBytes;
  if (free === undefined || free >= needed) return;
  throw new SourceError(
    `pull: ${entry.name} needs ${megabytes(needed)} in ${folder}, where ${megabytes(free)} are free. Free some space, or set LANTERN_CACHE to a folder on another disk`,
  );
}

interface DownloadResult {
  bytes: number;
  sha256: string;
  resumedBytes: number;
}

async function checkResult(
  entry: CatalogEntry,
  part: string,
  remote: RemoteFile,
  result: DownloadResult,
  platform: DownloadPlatform,
): Promise<void> {
  const expected = remote.sha256?.value ?? result.sha256;
  if (result.bytes === remote.bytes && result.sha256 === expected) return;
  const [got, wanted] =
    result.bytes !== remote.bytes
      ? [`${result.bytes} bytes`, `${remote.bytes} bytes`]
      : [`sha256 ${result.sha256}`, `${expected} (stated by ${remote.sha256?.statedBy})`];
  await platform.remove(part);
  await platform.remove(`${part}.json`);
  const message = `pull: ${entry.name}: what came from ${remote.name} is not the expected file: got ${got}, expected ${wanted}. It was deleted; run the command again, and if that does not help, do not trust this source`;
  // If a part came from an earlier run, that part may be the wrong one.
  throw result.resumedBytes > 0 ? new StaleDownload(message) : new SourceError(message);
}

async function discardPart(path: string, platform: DownloadPlatform): Promise<void> {
  await platform.remove(`${path}.part`);
  await platform.remove(`${path}.part.json`);
}

function fullDisk(
  error: unknown,
  entry: CatalogEntry,
  platform: DownloadPlatform,
): SourceError | undefined {
  const { reason, code } = error as { reason?: unknown; code?: unknown };
  if (reason !== "ENOSPC" && code !== "ENOSPC") return undefined;
  return new SourceError(
    `pull: the disk of ${platform.cacheFolder} became full before ${entry.name} (${megabytes(entry.bytes)}) was complete. Free some space and run the command again; the download continues where it stopped`,
    { cause: error },
  );
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(0)} MB`;
}
