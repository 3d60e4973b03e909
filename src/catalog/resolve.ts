// From what a user calls a model to a path that open() can read: an existing path wins, then the catalog's names, then
// "hf:owner/repo/file.gguf". A catalog model that is not on this machine yet is downloaded.

import { SourceError, UsageError } from "../base/errors.ts";
import type { DownloadPlatform } from "../platform/download.ts";
import { type CatalogEntry, catalog } from "./catalog.ts";
import { nearest } from "./nearest.ts";
import { findLocally, type PulledFile, type PullOptions, pullEntry } from "./pull.ts";

export interface ResolveOptions extends PullOptions {
  platform: DownloadPlatform;
  /** Called before a download begins. */
  onDownload?: (entry: CatalogEntry) => void;
}

/** A path (or URL) for open(): existing files as they are, catalog names as their file, downloaded if need be. */
export async function resolveModel(nameOrPath: string, options: ResolveOptions): Promise<string> {
  const { platform } = options;
  const entries = await entriesFor(nameOrPath, platform);
  if (!entries) return nameOrPath;
  let first: PulledFile | undefined;
  for (const entry of entries) {
    if (!(await findLocally(entry, platform))) options.onDownload?.(entry);
    const pulled = await pullEntry(entry, platform, options);
    first ??= pulled;
  }
  return first!.path;
}

/** The same for those who must not download: a catalog model that is not here is an error that says how to get it. */
export async function locateModel(nameOrPath: string, platform: DownloadPlatform): Promise<string> {
  const entries = await entriesFor(nameOrPath, platform);
  if (!entries) return nameOrPath;
  const found = await Promise.all(entries.map((entry) => findLocally(entry, platform)));
  if (found.every((file) => file !== undefined)) return found[0]!.path;
  throw new SourceError(
    `model: "${nameOrPath}" is not on this machine yet. Download it with: lantern pull ${nameOrPath}`,
  );
}

/** What the name stands for in the catalog; undefined for a URL or an existing path, which stand for themselves. */
async function entriesFor(
  nameOrPath: string,
  platform: DownloadPlatform,
): Promise<CatalogEntry[] | undefined> {
  if (/^https?:\/\//i.test(nameOrPath)) return undefined;
  if (nameOrPath !== "" && (await platform.stat(nameOrPath))) return undefined;
  const entries = findEntries(nameOrPath);
  if (!entries) throw unknownModel(nameOrPath);
  return entries;
}

/** The entries behind a catalog name or an hf: name (several for a split GGUF); undefined when it is neither. */
export function findEntries(name: string): CatalogEntry[] | undefined {
  if (name.startsWith("hf:")) return hubEntries(name);
  const entry = catalog.find((candidate) => candidate.name === name.toLowerCase());
  return entry && [entry];
}

/** What to say to somebody who named a model that does not exist. */
export function unknownModel(name: string): UsageError | SourceError {
  if (/[\\/]|\.(gguf|bin|safetensors)$/i.test(name)) {
    return new SourceError(
      `model: there is no file or folder "${name}". Check the path; "lantern models" lists the models that can be named without one`,
    );
  }
  const names = catalog.map((entry) => entry.name);
  const near = nearest(name, names);
  const hint =
    near.length > 0 ? `Did you mean ${near.join(" or ")}?` : `Known: ${names.join(", ")}.`;
  return new UsageError(
    `model: "${name}" is neither a file nor a model that Lantern knows by name. ${hint} Any other: a path, or hf:owner/repo/file.gguf`,
  );
}

function hubEntries(name: string): CatalogEntry[] {
  const match = /^hf:([\w.-]+\/[\w.-]+)(?:@([\w./-]+?))?\/([\w./ -]+)$/.exec(name);
  const path = match?.[3]?.split("/") ?? [];
  if (!match || path.some((part) => part === "" || part === "." || part === "..")) {
    throw new UsageError(
      `model: "${name}" does not name a file on the hub, expected hf:owner/repo/file.gguf (for example hf:Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf)`,
    );
  }
  const [, repo, revision = "main", file] = match as unknown as [string, string, string?, string?];
  return splitFiles(file!).map((each) => hubEntry(repo, revision, each));
}

/** All files of a split GGUF ("x-00001-of-00003.gguf"), else the file itself. */
function splitFiles(file: string): string[] {
  const match = /^(.*)-\d{5}-of-(\d{5})\.gguf$/.exec(file);
  if (!match) return [file];
  const [, stem, total] = match as unknown as [string, string, string];
  return Array.from({ length: Number(total) }, (_, index) => {
    return `${stem}-${String(index + 1).padStart(5, "0")}-of-${total}.gguf`;
  });
}

function hubEntry(repo: string, revision: string, file: string): CatalogEntry {
  const folder = revision === "main" ? repo : `${repo}@${revision}`;
  const known = catalog.find((entry) => entry.file === `hf/${folder}/${file}`);
  if (known) return known;
  return {
    name: `hf:${folder}/${file}`,
    description: "from the Hugging Face hub",
    licence: "see the model's page",
    bytes: 0,
    chat: true,
    file: `hf/${folder}/${file}`,
    source: { kind: "hub", repo, revision, file },
  };
}
