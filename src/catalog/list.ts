// What `lantern models` shows: the catalog, and what of it (and besides it) is on this machine.

import type { DownloadPlatform } from "../platform/download.ts";
import { type CatalogEntry, catalog } from "./catalog.ts";
import { findLocally } from "./pull.ts";
import { sourceKind } from "./sources/table.ts";

export interface ModelListing {
  name: string;
  description: string;
  licence: string;
  bytes: number;
  chat: boolean;
  /** "installed": came with Lantern; "cached": pulled; "partial": a stopped pull that can go on. */
  state: "installed" | "cached" | "partial" | "absent";
  path: string | undefined;
  source: string;
  sha256: string | undefined;
}

export async function listModels(platform: DownloadPlatform): Promise<ModelListing[]> {
  const files = await platform.listFiles(platform.cacheFolder);
  const listings = await Promise.all(
    catalog.map((entry) => catalogListing(entry, files, platform)),
  );
  const known = new Set(catalog.map((entry) => entry.file));
  for (const file of files) {
    if (known.has(file) || !/\.(gguf|safetensors|bin)$/i.test(file)) continue;
    listings.push(await fileListing(file, platform));
  }
  return listings;
}

async function catalogListing(
  entry: CatalogEntry,
  files: readonly string[],
  platform: DownloadPlatform,
): Promise<ModelListing> {
  const { name, description, licence, chat, sha256 } = entry;
  const found = await findLocally(entry, platform);
  const partial = files.includes(`${entry.file}.part`);
  const absent = partial ? "partial" : "absent";
  const state = found ? (found.from === "installed" ? "installed" : "cached") : absent;
  const source = sourceKind(entry.source).describe(entry.source);
  const bytes = found?.bytes ?? entry.bytes;
  return { name, description, licence, bytes, chat, state, path: found?.path, source, sha256 };
}

async function fileListing(file: string, platform: DownloadPlatform): Promise<ModelListing> {
  const path = platform.join(platform.cacheFolder, ...file.split("/"));
  const fromHub = file.startsWith("hf/");
  return {
    name: fromHub ? `hf:${file.slice("hf/".length)}` : path,
    description: "not in the catalog",
    licence: "unknown",
    bytes: (await platform.stat(path))?.bytes ?? 0,
    chat: true,
    state: "cached",
    path,
    source: fromHub ? "Hugging Face hub" : "file in the cache folder",
    sha256: undefined,
  };
}
