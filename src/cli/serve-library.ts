// The catalog as the server's ModelLibrary: what `lantern models` lists, `lantern pull` downloads and -m opens, for the
// Models page of the web app. Models open with the flags that `lantern serve` was started with.

import { listModels, type ModelListing } from "../catalog/list.ts";
import { pullEntry } from "../catalog/pull.ts";
import { findEntries, unknownModel } from "../catalog/resolve.ts";
import { LanternError, open } from "../index.ts";
import type { DownloadPlatform } from "../platform/download.ts";
import type { ModelLibrary } from "../serve.ts";
import { type ModelFlags, openOptions } from "./flags.ts";

/** `opened`: by the name that clients use, where the models that are served already come from. */
export function catalogLibrary(
  platform: DownloadPlatform,
  flags: ModelFlags,
  opened: Readonly<Record<string, string>>,
): ModelLibrary {
  const find = async (name: string): Promise<ModelListing> => {
    const found = (await listModels(platform)).find((model) => shownName(model) === name);
    if (!found) throw unknownModel(name);
    return found;
  };
  return {
    async list() {
      const listings = await listModels(platform);
      return listings.map((listing) => {
        const { description, licence, bytes, chat, state, source } = listing;
        return { name: shownName(listing), description, licence, bytes, chat, state, source };
      });
    },
    canDownload: (name) => name.startsWith("hf:") && isHubName(name),
    async download(name, { signal, onProgress }) {
      const entries = findEntries(name);
      if (!entries) throw unknownModel(name);
      for (const entry of entries) await pullEntry(entry, platform, { signal, onProgress });
    },
    async open(name, { signal, onProgress, chatTemplate, contextSize }) {
      const { path } = await find(name);
      if (path === undefined) throw unknownModel(name);
      const { chatTemplate: usual, contextSize: usualSize, ...options } = openOptions(flags);
      // The template that was given for the first model says nothing about another.
      const isFirst = name in opened;
      const template = chatTemplate ?? (isFirst ? usual : undefined);
      const size = contextSize ?? (isFirst ? usualSize : undefined);
      return await open(path, {
        ...options,
        ...(template !== undefined && { chatTemplate: template }),
        ...(size !== undefined && { contextSize: size }),
        signal,
        onProgress,
      });
    },
    async locate(id) {
      const listed = (await listModels(platform)).find((model) => shownName(model) === id);
      return listed?.path ?? opened[id];
    },
  };
}

/** A file in the cache folder goes by its name: where the folder is, a page need not know. */
function shownName({ name, path }: ModelListing): string {
  return name === path ? (name.split(/[\\/]/).at(-1) ?? name) : name;
}

function isHubName(name: string): boolean {
  try {
    return findEntries(name) !== undefined;
  } catch (error) {
    if (error instanceof LanternError) return false;
    throw error;
  }
}
