// Files that Ollama's clients upload (POST /api/blobs/sha256:...), by their hash, in the folder "blobs" of the cache folder: adapters of models
// that are made from others (made.ts). A file is there whole, with the hash that its name says, or not at all.

import { UsageError } from "../base/errors.ts";
import type { DownloadPlatform } from "../platform/download.ts";

/** "sha256:" and 64 digits. */
const shape = /^sha256[:-]([0-9a-f]{64})$/;

/** Larger uploads are refused. */
const mostBytes = 16 * 2 ** 30;

/** One that no model names for so long is deleted. */
const unusedMs = 24 * 3600 * 1000;

let uploads = 0;

/** The path of a blob; undefined: it is not there. */
export async function findBlob(
  digest: string,
  platform: DownloadPlatform,
): Promise<string | undefined> {
  const path = pathOf(digest, platform);
  return (await platform.stat(path)) ? path : undefined;
}

export async function writeBlob(
  digest: string,
  bytes: AsyncIterable<Uint8Array>,
  platform: DownloadPlatform,
): Promise<void> {
  const path = pathOf(digest, platform);
  const part = `${path}.${platform.processId}-${uploads++}.part`;
  await platform.makeFolder(folderOf(platform), { closed: true });
  const hash = platform.digest("sha256");
  let size = 0;
  try {
    const file = await platform.openAppend(part, 0);
    try {
      for await (const piece of bytes) {
        size += piece.length;
        if (size > mostBytes) {
          throw new UsageError(`the upload is larger than ${mostBytes} bytes, which is the limit`);
        }
        hash.update(piece);
        await file.append(piece);
      }
    } finally {
      await file.close();
    }
    const got = `sha256:${hash.digest("hex")}`;
    if (got !== digest.replace("-", ":")) {
      throw new UsageError(`${digest}: got ${size} bytes with the digest ${got}. Upload it again`);
    }
    await platform.rename(part, path);
  } catch (error) {
    await platform.remove(part).catch(() => {});
    throw error;
  }
}

/** Deletes blobs that no model names, unless they came within the last day. */
export async function pruneBlobs(
  named: ReadonlySet<string>,
  platform: DownloadPlatform,
  now: number = Date.now(),
): Promise<void> {
  const folder = folderOf(platform);
  for (const { name, folder: isFolder } of (await platform.listFolder(folder)) ?? []) {
    const isUsed = shape.test(name) && named.has(name.replace("-", ":"));
    if (isFolder || isUsed) continue;
    const path = platform.join(folder, name);
    const facts = await platform.stat(path);
    if (facts && now - (facts.modifiedMs ?? now) > unusedMs) await platform.remove(path);
  }
}

function folderOf(platform: DownloadPlatform): string {
  return platform.join(platform.cacheFolder, "blobs");
}

function pathOf(digest: string, platform: DownloadPlatform): string {
  const [, hex] = shape.exec(digest) ?? [];
  if (hex !== undefined) return platform.join(folderOf(platform), `sha256-${hex}`);
  throw new UsageError(
    `got the digest ${JSON.stringify(digest.slice(0, 80))}, expected "sha256:" and 64 hexadecimal digits`,
  );
}
