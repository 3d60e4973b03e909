// What `lantern models` shows: the catalog, what of it (and besides it) is on this machine, where it lies and what it takes
// of the disk. A split GGUF is one model; a model that was opened elsewhere on this machine is one, too.

import type { DownloadPlatform } from "../platform/download.ts";
import { type CatalogEntry, catalog } from "./catalog.ts";
import { quantizationOf, splitFiles } from "./hub-choice.ts";
import { linkedPaths } from "./linked.ts";
import { findLocally } from "./pull.ts";
import { sourceKind } from "./sources/table.ts";

export interface ModelListing {
  name: string;
  description: string;
  licence: string;
  /** Of the whole model; approximate where neither a hash nor a path is known. */
  bytes: number;
  chat: boolean;
  /**
   * "installed": came with Lantern; "cached": pulled; "partial": a stopped pull that can go on; "linked": lies elsewhere on
   * this machine.
   */
  state: "installed" | "cached" | "partial" | "linked" | "absent";
  /** What open() takes; undefined: it is not (all) here. */
  path: string | undefined;
  source: string;
  sha256: string | undefined;
  /** The built-in configuration of limits() that has its shape; undefined: none is known. */
  shape: string | undefined;
  /** What it takes of the disk of the cache folder, stopped downloads included. */
  diskBytes: number;
  /** Those files, below the cache folder. */
  files: readonly string[];
}

export async function listModels(platform: DownloadPlatform): Promise<ModelListing[]> {
  const found = await platform.listFiles(platform.cacheFolder);
  const sizes = new Map<string, number>(); // by path below the cache folder
  for (const file of found) {
    if (modelFile.test(file.replace(/\.part$/, ""))) sizes.set(file, await sizeOf(file, platform));
  }
  const listings = await Promise.all(
    catalog.map((entry) => catalogListing(entry, sizes, platform)),
  );
  const listed = new Set(catalog.map((entry) => entry.file));
  for (const file of sizes.keys()) {
    const whole = file.replace(/\.part$/, "");
    const [first = whole] = splitFiles(whole);
    if (listed.has(first)) continue;
    listed.add(first);
    listings.push(fileListing(first, sizes, platform));
  }
  for (const path of await linkedPaths(platform)) {
    const facts = await platform.stat(path).catch(() => undefined); // a disk that is not there, a locked folder
    if (facts) listings.push(await linkedListing(path, facts.folder, facts.bytes, platform));
  }
  return listings;
}

const modelFile = /\.(gguf|safetensors|bin|data)$/i;

async function sizeOf(file: string, platform: DownloadPlatform): Promise<number> {
  const facts = await platform.stat(pathOf(file, platform)).catch(() => undefined); // a link that leads nowhere
  return facts?.bytes ?? 0;
}

function pathOf(file: string, platform: DownloadPlatform): string {
  return platform.join(platform.cacheFolder, ...file.split("/"));
}

/** A model's files that are there, whole or begun. */
function filesHere(first: string, sizes: ReadonlyMap<string, number>): string[] {
  return splitFiles(first)
    .flatMap((file) => [file, `${file}.part`])
    .filter((file) => sizes.has(file));
}

function sum(files: readonly string[], sizes: ReadonlyMap<string, number>): number {
  return files.reduce((total, file) => total + sizes.get(file)!, 0);
}

async function catalogListing(
  entry: CatalogEntry,
  sizes: ReadonlyMap<string, number>,
  platform: DownloadPlatform,
): Promise<ModelListing> {
  const { name, description, licence, chat, sha256, shape } = entry;
  // What cannot be looked at is not here for this user; the other models still are.
  const found = await findLocally(entry, platform).catch(() => undefined);
  const partial = sizes.has(`${entry.file}.part`);
  const absent = partial ? "partial" : "absent";
  const files = filesHere(entry.file, sizes);
  return {
    name,
    description,
    licence,
    bytes: found?.bytes ?? entry.bytes,
    chat,
    state: found ? (found.from === "installed" ? "installed" : "cached") : absent,
    path: found?.path,
    source: sourceKind(entry.source).describe(entry.source),
    sha256,
    shape,
    diskBytes: sum(files, sizes),
    files,
  };
}

function fileListing(
  first: string,
  sizes: ReadonlyMap<string, number>,
  platform: DownloadPlatform,
): ModelListing {
  const path = pathOf(first, platform);
  const fromHub = first.startsWith("hf/");
  const isWhole = splitFiles(first).every((file) => sizes.has(file));
  const files = filesHere(first, sizes);
  const bytes = sum(files, sizes);
  return {
    name: fromHub ? `hf:${first.slice("hf/".length)}` : path,
    description: fromHub ? "from the Hugging Face hub" : "a file in the cache folder",
    licence: fromHub ? "see the model's page" : "unknown",
    bytes,
    chat: true,
    state: isWhole ? "cached" : "partial",
    path: isWhole ? path : undefined,
    source: fromHub ? "Hugging Face hub" : "file in the cache folder",
    sha256: undefined,
    shape: undefined,
    diskBytes: bytes,
    files,
  };
}

async function linkedListing(
  path: string,
  folder: boolean,
  bytes: number,
  platform: DownloadPlatform,
): Promise<ModelListing> {
  const inside = folder ? ((await platform.listFolder(path)) ?? []) : [];
  const weights = inside.filter(({ name }) => /\.(safetensors|gguf|bin)$/i.test(name));
  return {
    name: path,
    description: "a model that lies elsewhere on this machine",
    licence: "unknown",
    bytes: folder ? weights.reduce((total, file) => total + file.bytes, 0) : bytes,
    chat: true,
    state: "linked",
    path,
    source: folder ? "folder on this machine" : "file on this machine",
    sha256: undefined,
    shape: undefined,
    diskBytes: 0,
    files: [],
  };
}

/** What the cache folder holds in all. */
export function diskUse(listings: readonly ModelListing[]): number {
  return listings.reduce((total, { diskBytes }) => total + diskBytes, 0);
}

/** Names by which a listing may be meant besides its own: its repository, that and its quantization, its file. */
export function otherNames({ name, path }: ModelListing): string[] {
  const hub = /^hf:([^/]+\/[^/]+)\/(.+)$/.exec(name);
  const quantization = hub && quantizationOf(hub[2]!);
  return [
    ...(hub ? [`hf:${hub[1]}`] : []),
    ...(quantization ? [`hf:${hub[1]}:${quantization}`] : []),
    ...(path === undefined ? [] : [path, path.split(/[\\/]/).at(-1)!]),
  ];
}
