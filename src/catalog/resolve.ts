// From a user's name for a model to a path that open() can read: an existing path first, then catalog names, then
// names and pages of the Hugging Face hub. Downloads models that are not on this machine, except in locateModel().

import { SourceError, UsageError } from "../base/errors.ts";
import { suggestion } from "../base/nearest.ts";
import type { DownloadPlatform } from "../platform/download.ts";
import { type CatalogEntry, catalog } from "./catalog.ts";
import { chooseVariant, type HubVariant, splitFiles, variantsOf } from "./hub-choice.ts";
import { type HubFile, hubFiles } from "./hub-client.ts";
import { type HubName, hubFolder, isDirectAddress, readBareName, readHubName } from "./hub-name.ts";
import { findLocally, type PulledFile, type PullOptions, pullEntry } from "./pull.ts";

export interface ResolveOptions extends PullOptions {
  platform: DownloadPlatform;
  /** Called before a download starts. */
  onDownload?: (entry: CatalogEntry) => void;
}

/** A path (or URL) for open(): an existing file itself, or the file of a name, downloaded if necessary. */
export async function resolveModel(nameOrPath: string, options: ResolveOptions): Promise<string> {
  const { platform, signal } = options;
  const found = await knownAs(nameOrPath, platform);
  if (found === "itself") return nameOrPath;
  const entries =
    "entries" in found
      ? found.entries
      : ((await localEntries(found.hub, platform)) ??
        (
          await hubChoice(found.hub, platform, signal).catch((error: unknown) => {
            throw found.bare ? orPath(nameOrPath, error) : error;
          })
        ).entries);
  let first: PulledFile | undefined;
  for (const entry of entries) {
    if (!(await findLocally(entry, platform))) options.onDownload?.(entry);
    const pulled = await pullEntry(entry, platform, options);
    first ??= pulled;
  }
  return first!.path;
}

/** The same without downloading: a model that is not here is an error that says how to get it. */
export async function locateModel(nameOrPath: string, platform: DownloadPlatform): Promise<string> {
  const found = await knownAs(nameOrPath, platform);
  if (found === "itself") return nameOrPath;
  const entries =
    "entries" in found ? found.entries : ((await localEntries(found.hub, platform)) ?? []);
  const files = await Promise.all(entries.map((entry) => findLocally(entry, platform)));
  if (files.length > 0 && files.every((file) => file !== undefined)) return files[0]!.path;
  if ("bare" in found && found.bare) throw unknownModel(nameOrPath);
  throw new SourceError(
    `model: "${nameOrPath}" is not on this machine yet. Download it with: lantern pull ${nameOrPath}`,
  );
}

/** The meaning of a name: entries that can be pulled, or a repository from which one must be chosen. */
type Known = { entries: CatalogEntry[] } | { hub: HubName; bare: boolean };

/** "itself": a URL or an existing path. */
async function knownAs(nameOrPath: string, platform: DownloadPlatform): Promise<Known | "itself"> {
  const isUrl = /^https?:\/\//i.test(nameOrPath);
  if (isUrl && isDirectAddress(nameOrPath)) return "itself";
  if (!isUrl && nameOrPath !== "" && (await platform.stat(nameOrPath))) return "itself";
  const known = nameOf(nameOrPath, platform);
  if (known) return known;
  if (isUrl) return "itself";
  throw unknownModel(nameOrPath);
}

function nameOf(name: string, platform: DownloadPlatform): Known | undefined {
  const entry = catalog.find((candidate) => candidate.name === name.toLowerCase());
  if (entry) return { entries: [entry] };
  const hub = readHubName(name, platform.env("HF_ENDPOINT"));
  if (hub?.file !== undefined) return { entries: fileEntries(hub, hub.file) };
  if (hub) return { hub, bare: false };
  const bare = readBareName(name);
  return bare && { hub: bare, bare: true };
}

/** The entries behind a catalog name or an hf: name of a file (several for a split GGUF); undefined if it is neither. */
export function findEntries(name: string): CatalogEntry[] | undefined {
  const entry = catalog.find((candidate) => candidate.name === name.toLowerCase());
  if (entry) return [entry];
  const hub = readHubName(name);
  return hub?.file === undefined ? undefined : fileEntries(hub, hub.file);
}

/** The download for a name. */
export interface PullChoice {
  entries: CatalogEntry[];
  bytes: number;
  /** The chosen variant of the repository, and all its variants; undefined if the name left no choice. */
  chosen?: HubVariant;
  variants?: readonly HubVariant[];
  /** "owner/repo", if a repository was named. */
  repository?: string;
}

/** The download of `lantern pull NAME`; asks the hub if the name leaves a choice. Accepts every form that users paste. */
export async function choosePull(
  name: string,
  platform: DownloadPlatform,
  signal?: AbortSignal,
): Promise<PullChoice> {
  const wanted = name.trim();
  const slashes = wanted.split("/").length - 1;
  // "owner/repo/file.gguf" is a path elsewhere; for a pull it can only mean the hub.
  const isBareFile = slashes >= 2 && /^[\w-][\w.-]*\/[\w.-]+\/.*\.gguf$/i.test(wanted);
  const known = nameOf(isBareFile ? `hf:${wanted}` : wanted, platform);
  if (!known) throw unknownModel(wanted);
  if ("hub" in known) {
    const here = known.hub.quantization && (await localEntries(known.hub, platform));
    if (here) return { entries: here, bytes: sumBytes(here) };
    return await hubChoice(known.hub, platform, signal);
  }
  return { entries: known.entries, bytes: sumBytes(known.entries) };
}

/** Whether a name has a form that can be pulled, whether or not such a model exists. */
export function canPull(name: string, platform: DownloadPlatform): boolean {
  try {
    const bareFile = /^[\w-][\w.-]*\/[\w.-]+\/.*\.gguf$/i.test(name);
    return nameOf(bareFile ? `hf:${name}` : name.trim(), platform) !== undefined;
  } catch (error) {
    if (error instanceof UsageError) return false;
    throw error;
  }
}

async function hubChoice(
  hub: HubName,
  platform: DownloadPlatform,
  signal: AbortSignal | undefined,
): Promise<PullChoice> {
  const variants = variantsOf(await hubFiles(hub, platform, signal));
  const { repo, quantization } = hub;
  const chosen = chooseVariant(variants, {
    repo,
    quantization,
    memoryBytes: platform.memoryBytes,
  });
  const entries = chosen.files.map(({ path, bytes }) => hubEntry(hub, path, bytes));
  return { entries, bytes: chosen.bytes, chosen, variants, repository: hubFolder(hub) };
}

/** A model of this repository that is already on this machine; undefined if the name fits none. */
async function localEntries(
  hub: HubName,
  platform: DownloadPlatform,
): Promise<CatalogEntry[] | undefined> {
  const folder = platform.join(platform.cacheFolder, "hf", ...hubFolder(hub).split("/"));
  const files: HubFile[] = [];
  for (const path of await platform.listFiles(folder)) {
    if (!/\.gguf$/i.test(path)) continue;
    const facts = await platform.stat(platform.join(folder, ...path.split("/")));
    files.push({ path, bytes: facts?.bytes ?? 0, sha256: undefined });
  }
  const wanted = hub.quantization?.toUpperCase();
  const variants = variantsOf(files).filter(
    ({ quantization }) => wanted === undefined || quantization === wanted,
  );
  if (variants.length === 0) return undefined;
  const wish = { repo: hub.repo, quantization: undefined, memoryBytes: undefined };
  return chooseVariant(variants, wish).files.map(({ path, bytes }) => hubEntry(hub, path, bytes));
}

/** The error for a name of no known model. */
export function unknownModel(name: string): UsageError | SourceError {
  if (/[\\/]|\.(gguf|bin|safetensors)$/i.test(name)) {
    return new SourceError(
      `model: there is no file or folder "${name}". Check the path; "lantern models" lists the models that can be named without one`,
    );
  }
  const names = catalog.map((entry) => entry.name);
  return new UsageError(
    `model: "${name}" is neither a file nor the name of a model that Lantern knows. ${suggestion(name, names)} For any other model, give a path, or hf:owner/repo for the Hugging Face hub ("lantern search" finds repositories)`,
  );
}

/** "models/tiny" may be a mistyped path as well as a repository. */
function orPath(name: string, error: unknown): unknown {
  if (!(error instanceof SourceError)) return error;
  return new SourceError(
    `model: there is no file or folder "${name}", and no such model on the Hugging Face hub either: ${error.message}`,
    { cause: error },
  );
}

function fileEntries(hub: HubName, file: string): CatalogEntry[] {
  return splitFiles(file).map((each) => hubEntry(hub, each, 0));
}

function hubEntry(hub: HubName, file: string, bytes: number): CatalogEntry {
  const { repo, revision } = hub;
  const folder = hubFolder(hub);
  const known = catalog.find((entry) => entry.file === `hf/${folder}/${file}`);
  if (known) return known;
  return {
    name: `hf:${folder}/${file}`,
    description: "from the Hugging Face hub",
    licence: "see the model's page",
    bytes,
    chat: true,
    file: `hf/${folder}/${file}`,
    source: { kind: "hub", repo, revision, file },
  };
}

function sumBytes(entries: readonly CatalogEntry[]): number {
  return entries.reduce((sum, { bytes }) => sum + bytes, 0);
}
