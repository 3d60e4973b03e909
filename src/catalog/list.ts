// The list behind `lantern models`: the catalog and all other models on this machine, with their paths and disk use. A
// split GGUF counts as one model. Models that were opened elsewhere on this machine are included.

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
  /** Size of the whole model; approximate where neither a hash nor a path is known. */
  bytes: number;
  chat: boolean;
  /**
   * "installed": came with Lantern; "cached": pulled; "partial": an interrupted pull that can be resumed; "linked":
   * elsewhere on this machine; "given": named by the command line of a server.
   */
  state: "installed" | "cached" | "partial" | "linked" | "given" | "absent";
  /** The path to give to open(); undefined if the model is not (completely) here. */
  path: string | undefined;
  source: string;
  sha256: string | undefined;
  /** The built-in configuration of limits() with the same shape; undefined if none is known. */
  shape: string | undefined;
  /** Disk use in the cache folder, interrupted downloads included. */
  diskBytes: number;
  /** The files that take it, relative to the cache folder. */
  files: readonly string[];
}

export async function listModels(platform: DownloadPlatform): Promise<ModelListing[]> {
  const found = await platform.listFiles(platform.cacheFolder);
  const sizes = new Map<string, number>(); // by path below the cache folder
  for (const file of found) {
    if (ownFile.test(file)) continue;
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
    const facts = await platform.stat(path).catch(() => undefined); // an unmounted disk, a locked folder
    if (facts) listings.push(await linkedListing(path, facts.folder, facts.bytes, platform));
  }
  return listings;
}

/** Lantern's other data beside models if LANTERN_CACHE names one folder for both: kernels, compiled code, states of models. */
const ownFile = /^(?:native|compile|state)\//;
const modelFile = /\.(gguf|safetensors|bin|data)$/i;

async function sizeOf(file: string, platform: DownloadPlatform): Promise<number> {
  const facts = await platform.stat(pathOf(file, platform)).catch(() => undefined); // a broken link
  return facts?.bytes ?? 0;
}

function pathOf(file: string, platform: DownloadPlatform): string {
  return platform.join(platform.cacheFolder, ...file.split("/"));
}

/** A model's files that are here, complete or partial. */
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
  // A model whose files cannot be read counts as absent; the others are still listed.
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

/** The listing of a file or folder that is in no list, such as one that a command line names. */
export async function givenListing(
  name: string,
  path: string,
  platform: DownloadPlatform,
): Promise<ModelListing> {
  const facts = await platform.stat(path).catch(() => undefined); // a URL, or it is gone
  const listing = await linkedListing(path, facts?.folder ?? false, facts?.bytes ?? 0, platform);
  const description = "a model that the server was started with";
  return { ...listing, name, description, state: "given", source: "command line" };
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

/** Disk use of the whole cache folder. */
export function diskUse(listings: readonly ModelListing[]): number {
  return listings.reduce((total, { diskBytes }) => total + diskBytes, 0);
}

/** Other names for a listing: its repository, the same with its quantization, its file. */
export function otherNames({ name, path }: ModelListing): string[] {
  const hub = /^hf:([^/]+\/[^/]+)\/(.+)$/.exec(name);
  const quantization = hub && quantizationOf(hub[2]!);
  return [
    ...(hub ? [`hf:${hub[1]}`] : []),
    ...(quantization ? [`hf:${hub[1]}:${quantization}`] : []),
    ...(path === undefined ? [] : [path, path.split(/[\\/]/).at(-1)!]),
  ];
}
