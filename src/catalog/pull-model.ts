// Downloads a model by name, with all its files: the command line and the server call it to pull.

import type { DownloadPlatform } from "../platform/download.ts";
import type { CatalogEntry } from "./catalog.ts";
import { findLocally, type PulledFile, type PullOptions, pullEntry } from "./pull.ts";
import { choosePull, type PullChoice } from "./resolve.ts";

export interface PulledModel {
  /** The model's name in the list of models. */
  name: string;
  /** Path of the first file, which stands for the model. */
  path: string;
  bytes: number;
  files: { entry: CatalogEntry; pulled: PulledFile }[];
}

/** Pulls the model of that name; pass `choice` if it is already known. */
export async function pullModel(
  name: string,
  platform: DownloadPlatform,
  options: PullOptions & { choice?: PullChoice } = {},
): Promise<PulledModel> {
  const { signal, onProgress } = options;
  const { entries } = options.choice ?? (await choosePull(name, platform, signal));
  const sizes = await Promise.all(entries.map((entry) => knownBytes(entry, platform)));
  const files: PulledModel["files"] = [];
  let before = 0;
  for (const [index, entry] of entries.entries()) {
    const after = sizes.slice(index + 1).reduce((sum, bytes) => sum + bytes, 0);
    const pulled = await pullEntry(entry, platform, {
      ...(signal && { signal }),
      onProgress: ({ phase, loadedBytes, totalBytes }) =>
        onProgress?.({
          phase,
          loadedBytes: before + loadedBytes,
          totalBytes: before + totalBytes + after,
        }),
    });
    before += pulled.bytes;
    files.push({ entry, pulled });
  }
  const [first] = files;
  return { name: first!.entry.name, path: first!.pulled.path, bytes: before, files };
}

async function knownBytes(entry: CatalogEntry, platform: DownloadPlatform): Promise<number> {
  return (await findLocally(entry, platform))?.bytes ?? entry.bytes;
}
