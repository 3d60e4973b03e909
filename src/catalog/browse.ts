// Finds models that are already on this machine: lists one folder, or looks for a file of a given name and size in the
// usual model folders. Reads folders, never files.

import { SourceError, UsageError } from "../base/errors.ts";
import type { DownloadPlatform, FolderEntry } from "../platform/download.ts";
import { splitFiles } from "./hub-choice.ts";

export interface BrowsedFolder {
  path: string;
  parent: string | null;
  entries: { name: string; path: string; kind: "folder" | "model"; bytes: number }[];
}

const modelFile = /\.(gguf|bin)$/i;

/** Subfolders and models of a folder; undefined: the home folder. */
export async function browseFolder(
  path: string | undefined,
  platform: DownloadPlatform,
): Promise<BrowsedFolder> {
  const folder = platform.absolute(path ?? platform.homeFolder);
  const inside = await platform.listFolder(folder);
  if (!inside) {
    throw new SourceError(
      `folder: "${folder}" cannot be opened: it does not exist, or this user may not read it. Check the path`,
    );
  }
  const above = platform.join(folder, "..");
  const entries: BrowsedFolder["entries"] = [];
  for (const entry of inside) {
    const kind = await kindOf(entry, folder, platform);
    if (!kind) continue;
    const { name, bytes } = entry;
    entries.push({ name, path: platform.join(folder, name), kind, bytes });
  }
  entries.sort((a, b) => a.kind.localeCompare(b.kind) || a.name.localeCompare(b.name));
  return { path: folder, parent: above === folder ? null : above, entries };
}

/** Hidden folders are left out of the list; their path can still be typed. */
async function kindOf(
  { name, folder, bytes }: FolderEntry,
  inside: string,
  platform: DownloadPlatform,
): Promise<"folder" | "model" | undefined> {
  if (name.startsWith(".")) return undefined;
  if (!folder) {
    const isFirst = splitFiles(name)[0] === name;
    return modelFile.test(name) && isFirst && bytes > 0 ? "model" : undefined;
  }
  const path = platform.join(inside, name);
  return (await isModelFolder(path, platform)) ? "model" : "folder";
}

/** A folder in the hub's format: config and safetensors. */
async function isModelFolder(path: string, platform: DownloadPlatform): Promise<boolean> {
  if (!(await platform.stat(platform.join(path, "config.json")))) return false;
  const inside = (await platform.listFolder(path)) ?? [];
  return inside.some(({ name }) => name.endsWith(".safetensors"));
}

/** The path of something that can be opened as a model; an error says why it cannot. */
export async function checkModelPath(path: string, platform: DownloadPlatform): Promise<string> {
  const full = platform.absolute(path.trim().replace(/^(["'])(.*)\1$/, "$2"));
  const facts = await platform.stat(full).catch(() => undefined);
  if (!facts) {
    throw new SourceError(`model: there is no file or folder "${full}". Check the path`);
  }
  if (facts.folder && !(await isModelFolder(full, platform))) {
    throw new UsageError(
      `model: the folder "${full}" holds no model, expected config.json and .safetensors files. Choose a GGUF file in it`,
    );
  }
  if (!facts.folder && !modelFile.test(full) && !/\.safetensors$/i.test(full)) {
    throw new UsageError(
      `model: "${full}" is not a model file, expected a name that ends in .gguf`,
    );
  }
  return full;
}

/** The usual folders of models of people and other programs, below the home folder. */
const usualFolders: readonly (readonly string[])[] = [
  ["Downloads"],
  ["Desktop"],
  ["Documents"],
  ["models"],
  [".lmstudio", "models"],
  [".cache", "lm-studio", "models"],
  [".cache", "huggingface", "hub"],
  [".cache", "llama.cpp"],
  ["Library", "Caches", "llama.cpp"],
  [],
];
const deepest = 5;
const mostFolders = 3000;

/**
 * Files of that name and size in the usual folders. A page that gets a dropped file learns only its name and size, not
 * its path.
 */
export async function findFile(
  name: string,
  bytes: number,
  platform: DownloadPlatform,
): Promise<string[]> {
  if (!modelFile.test(name)) return [];
  const found = new Set<string>();
  const seen = new Set<string>();
  const look = async (folder: string, depth: number): Promise<void> => {
    if (seen.has(folder) || seen.size >= mostFolders) return;
    seen.add(folder);
    for (const entry of (await platform.listFolder(folder)) ?? []) {
      const path = platform.join(folder, entry.name);
      if (!entry.folder && entry.name === name && entry.bytes === bytes) found.add(path);
      const goesOn = entry.folder && depth > 0 && entry.name !== "node_modules";
      if (goesOn && !entry.name.startsWith(".")) await look(path, depth - 1);
    }
  };
  await look(platform.cacheFolder, deepest);
  for (const parts of usualFolders) {
    // The home folder is not searched recursively.
    await look(platform.join(platform.homeFolder, ...parts), parts.length === 0 ? 0 : deepest);
  }
  return [...found];
}
