// The catalog as the server's ModelLibrary, for the Models page of the web app: the models that `lantern models` lists,
// `lantern pull` downloads, `lantern rm` deletes and -m opens. Models are opened with the flags of `lantern serve`.

import { browseFolder, checkModelPath, findFile } from "../../src/catalog/browse.ts";
import { roughlyFits, variantName } from "../../src/catalog/hub-choice.ts";
import { searchHub } from "../../src/catalog/hub-client.ts";
import { linkPath } from "../../src/catalog/linked.ts";
import { diskUse, givenListing, listModels, type ModelListing } from "../../src/catalog/list.ts";
import { pullModel } from "../../src/catalog/pull-model.ts";
import { removeModel } from "../../src/catalog/remove.ts";
import { canPull, choosePull, unknownModel } from "../../src/catalog/resolve.ts";
import { open, UsageError } from "../../src/index.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import type { ModelLibrary } from "../server/serve.ts";
import { kvTypeOf, type ModelFlags, openOptions } from "./flags.ts";
import { ChosenOptions } from "./load-choices.ts";
import { type FittedModel, loadPlan, withFits } from "./model-fits.ts";

const fitMs = 5000;

/** Models that requests load by their names, besides those of the catalog. */
interface Others {
  given(): Promise<readonly { id: string; path: string }[]>;
  /** The flags to open such a model with; undefined: it is no such model. */
  flagsOf(id: string): ModelFlags | undefined;
  locate(id: string): Promise<string | undefined>;
}

/** A model that the server has started with. */
interface OpenedModel {
  location: string;
  /** From --chat-template. */
  chatTemplate?: string | undefined;
}

/**
 * `opened`: the models that are already served, by the names that clients use; `others`: those that requests load;
 * `chosen`: the last load choices of each. */
export function catalogLibrary(
  platform: DownloadPlatform,
  flags: ModelFlags,
  opened: Readonly<Record<string, OpenedModel>>,
  others: Others | undefined = undefined,
  chosen: ChosenOptions = ChosenOptions.none(platform),
): ModelLibrary {
  const atStart = (id: string): OpenedModel | undefined =>
    Object.hasOwn(opened, id) ? opened[id] : undefined;
  // Every model that can be loaded is in the list, under the name that requests use.
  const all = async (): Promise<Map<string, ModelListing>> => {
    const named = withShownNames(await listModels(platform));
    const given = Object.entries(opened).map(([id, { location }]) => ({ id, path: location }));
    for (const { id, path } of [...given, ...((await others?.given()) ?? [])]) {
      if (named.get(id)?.path === path) continue;
      const listed = [...named].find(([, listing]) => listing.path === path);
      if (listed) named.delete(listed[0]);
      named.set(id, listed?.[1] ?? (await givenListing(id, path, platform)));
    }
    return named;
  };
  const memory = () => ({
    memoryBytes: platform.memoryBytes,
    freeMemoryBytes: platform.freeMemoryBytes(),
  });
  const find = async (name: string): Promise<ModelListing> => {
    const found = (await all()).get(name);
    if (!found) throw unknownModel(name);
    return found;
  };
  const elsewhere = new Map<string, string>(); // paths of opened models that are not in the list
  // The page polls while a task runs; headers need not be read again each time.
  let fits: { of: string; until: number; models: Promise<FittedModel[]> } | undefined;
  const fitted = async (listings: readonly ModelListing[]): Promise<FittedModel[]> => {
    const of = listings.map(({ name, state, bytes }) => `${name} ${state} ${bytes}`).join("\n");
    if (fits?.of !== of || Date.now() > fits.until) {
      fits = { of, until: Date.now() + fitMs, models: withFits(listings) };
    }
    return await fits.models;
  };
  const digests = new Map<string, Promise<string>>(); // by path, size and modification time
  return {
    async list() {
      const named = await all();
      const names = new Map([...named].map(([name, listing]) => [listing.name, name]));
      const models = await fitted([...named.values()]);
      return models.map((model) => {
        const { description, licence, bytes, chat, state, source, sha256, diskBytes, fit } = model;
        const name = names.get(model.name)!;
        const options = model.path === undefined ? undefined : chosen.of(model.path);
        const facts = { description, licence, bytes, chat, state, source, sha256, diskBytes, fit };
        return { name, ...facts, ...(options && { options }) };
      });
    },
    canDownload: (name) => canPull(name, platform),
    async download(name, { signal, onProgress }) {
      return (await pullModel(name, platform, { signal, onProgress })).name;
    },
    async open(name, { signal, onProgress, ...wanted }) {
      const { path: known, ...change } = wanted;
      const listed = (await all()).get(name)?.path;
      const path = listed ?? atStart(name)?.location ?? known;
      if (path === undefined) throw unknownModel(name);
      elsewhere.set(name, path);
      const asked = chosen.with(path, change);
      const own = others?.flagsOf(name);
      const { contextSize, gpuLayers, gpuFor, ...options } = openOptions(own ?? flags);
      // Either one sets the layers on the GPU: a request for one replaces the flags of the command line.
      const isGpuAsked = asked.gpuLayers !== undefined || asked.gpuFor !== undefined;
      // The template and context of the command line do not apply to other models.
      const first = atStart(name);
      const given = {
        ...options,
        ...(!isGpuAsked && { gpuLayers, gpuFor }),
        ...(first && { chatTemplate: first.chatTemplate }),
        ...((first || own) && { contextSize }),
        ...defined(asked),
      };
      const model = await open(path, { ...defined(given), signal, onProgress });
      await chosen.keep(path, asked); // only choices that work
      return model;
    },
    async locate(id) {
      // An unreadable cache folder must not prevent serving models from elsewhere.
      const listed = await all().catch(() => undefined);
      const known = listed?.get(id)?.path ?? atStart(id)?.location ?? elsewhere.get(id);
      return known ?? (await others?.locate(id));
    },
    async remove(name) {
      const { how, bytes } = await removeModel((await find(name)).name, platform);
      return { how, bytes };
    },
    async digest(name) {
      const listing = (await all()).get(name);
      const path = listing?.path ?? atStart(name)?.location;
      if (path === undefined || (listing?.path && listing.sha256)) return path && listing?.sha256;
      const facts = await platform.stat(path);
      if (!facts || facts.folder) return undefined;
      const key = `${path} ${facts.bytes} ${facts.modifiedMs}`;
      const known = digests.get(key) ?? fileDigest(path, platform);
      digests.set(key, known); // immediately, so that concurrent requests share one read
      known.catch(() => digests.delete(key));
      return await known;
    },
    async place() {
      const { cacheFolder } = platform;
      return {
        folder: cacheFolder,
        usedBytes: diskUse(await listModels(platform)),
        freeBytes: await platform.freeBytes(cacheFolder),
        ...memory(),
      };
    },
    async plan(name, change) {
      const { path } = await find(name);
      if (path === undefined) throw unknownModel(name);
      const own = others?.flagsOf(name) ?? flags;
      const isOwn = atStart(name) !== undefined || own !== flags;
      const {
        contextSize = isOwn ? own.ctxSize : undefined,
        kvType = kvTypeOf(own),
        weights = own.weights,
      } = chosen.with(path, change);
      return { ...(await loadPlan(path, contextSize, kvType, weights)), ...memory() };
    },
    async variants(repository, signal) {
      const {
        variants,
        chosen,
        repository: folder,
      } = await choosePull(repository, platform, signal);
      if (!variants) {
        throw new UsageError(`"${repository}" names one model already: it can be downloaded`);
      }
      return variants.map((variant) => ({
        name: `hf:${folder}/${variant.files[0]!.path}`,
        label: variantName(variant),
        bytes: variant.bytes,
        files: variant.files.length,
        fits: roughlyFits(variant.bytes, platform.memoryBytes),
        suggested: variant === chosen,
      }));
    },
    search: (words, signal) => searchHub(words, platform, { signal }),
    folder: (path) => browseFolder(path, platform),
    findFile: (name, bytes) => findFile(name, bytes, platform),
    async link(path) {
      const full = await checkModelPath(path, platform);
      await linkPath(full, platform);
      const listed = [...(await all())].find(([, listing]) => listing.path === full);
      return listed![0];
    },
  };
}

/** Files are shown by name, because pages on other machines need not know their paths. Two of the same name show more of the path. */
export function withShownNames(listings: readonly ModelListing[]): Map<string, ModelListing> {
  const shown = new Map<string, ModelListing>();
  for (const listing of listings) {
    const isPath = listing.name === listing.path;
    const parts = isPath ? listing.name.split(/[\\/]/).filter((part) => part !== "") : [];
    let name = isPath ? parts.at(-1)! : listing.name;
    for (let count = 2; shown.has(name) && count <= parts.length; count++) {
      name = parts.slice(-count).join("/");
    }
    if (!shown.has(name)) shown.set(name, listing);
  }
  return shown;
}

async function fileDigest(path: string, platform: DownloadPlatform): Promise<string> {
  const hash = platform.digest("sha256");
  for await (const chunk of platform.readChunks(path)) hash.update(chunk);
  return hash.digest("hex");
}

/** Drops undefined options, which open() does not accept. */
function defined<T extends object>(options: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(
    Object.entries(options).filter(([, value]) => value !== undefined),
  ) as never;
}
