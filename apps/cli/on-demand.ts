// The models of `lantern serve` that requests load by their names: of --models-dir, of the catalog, and of the file of presets.
// Names and paths come from the disk; a name from a request is only compared with them.

import { browseFolder } from "../../src/catalog/browse.ts";
import { listModels, type ModelListing, otherNames } from "../../src/catalog/list.ts";
import { open, UsageError } from "../../src/index.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import type { ModelPreset, OnDemandModel, OnDemandModels } from "../server/serve.ts";
import { kvTypeOf, type ModelFlags, openOptions } from "./flags.ts";
import { ChosenOptions, withChosen } from "./load-choices.ts";
import { loadPlan } from "./model-fits.ts";
import type { ModelSettings, PresetFile } from "./models-preset.ts";
import { withShownNames } from "./serve-library.ts";

export interface OnDemandSources {
  /** --models-dir */
  readonly folder?: string | undefined;
  /** Whether models of the catalog are loaded, too. */
  readonly catalog: boolean;
  /** The models that the server starts with, by their names. */
  readonly first: ReadonlyMap<string, string>;
  /** The folder of the file of presets, for paths in it. */
  readonly presetFolder?: string | undefined;
  /** The current settings of that file. */
  presets(): PresetFile;
}

/** A model with the path of its files. */
interface Located extends OnDemandModel {
  readonly path: string;
}

export interface LocatedModels extends OnDemandModels {
  locate(id: string): Promise<string | undefined>;
  /** Models that are neither in the catalog nor made from others. */
  given(): Promise<readonly { id: string; path: string }[]>;
  /** The flags to open such a model with; undefined: it is no such model. */
  flagsOf(id: string): ModelFlags | undefined;
}

type Derived = Parameters<OnDemandModels["derive"]>[1];

export function onDemandModels(
  platform: DownloadPlatform,
  flags: ModelFlags,
  sources: OnDemandSources,
  chosen: ChosenOptions = ChosenOptions.none(platform),
): LocatedModels {
  /** The path at which each was listed. */
  const places = new Map<string, string>();
  const owned = new Set<string>();
  const derived = new Map<string, Derived>();
  const own = (id: string): ModelSettings | undefined =>
    sources.presets().models.get(derived.get(id)?.of ?? id);
  const flagsOf = (id: string): ModelFlags => {
    const { template, contextSize: ctxSize, adapters = [] } = derived.get(id) ?? {};
    const lora = adapters.map((location) => ({ location, scale: 1 }));
    const place = places.get(derived.get(id)?.of ?? id);
    const given = { ...flags, ...sources.presets().defaults.flags, ...own(id)?.flags };
    return {
      ...(place === undefined ? given : withChosen(given, chosen.of(place))),
      ...(template !== undefined && { template }),
      ...(ctxSize !== undefined && { ctxSize }),
      ...(lora.length > 0 && { lora, loraInitWithoutApply: false }),
    };
  };
  const all = async (): Promise<Located[]> => {
    const found = await located(platform, sources);
    for (const { id, path, source } of found) {
      places.set(id, path);
      if (source !== "cache") owned.add(id);
    }
    const more = [...derived].flatMap(([id, { of }]) => {
      const base = found.find((one) => one.id === of);
      const path = base?.path ?? sources.first.get(of);
      if (path === undefined) return [];
      return [{ id, path, aliases: [], file: lastPart(path), bytes: base?.bytes ?? 0 }];
    });
    return [...found, ...more];
  };
  const pathOf = async (id: string): Promise<string> => {
    const found = (await all()).find((one) => one.id === id);
    if (found) return found.path;
    throw new UsageError(`there is no model "${id}" any more: its file is gone`);
  };
  return {
    async list() {
      const models = await all();
      // The models that the server has started with are served already, perhaps under another name.
      const started = new Set(sources.first.values());
      const isOwn = (id: string): boolean => derived.has(id) || sources.presets().models.has(id);
      return models
        .filter(({ id, path }) => !sources.first.has(id) && (isOwn(id) || !started.has(path)))
        .map(({ path: _, ...model }) => model);
    },
    async open(id, { signal, onProgress }) {
      return await open(await pathOf(id), { ...openOptions(flagsOf(id)), signal, onProgress });
    },
    async needs(id) {
      const { ctxSize, weights, backend, gpuLayers, ...rest } = flagsOf(id);
      const isOnCpu = (backend === undefined || backend === "cpu") && !gpuLayers;
      if (!isOnCpu) return 0; // only its engine knows a GPU's memory
      const plan = await loadPlan(await pathOf(id), ctxSize, kvTypeOf(rest), weights);
      return plan.totalBytes;
    },
    preset(id) {
      const usual = sources.presets().defaults.preset;
      return merged(merged(usual, own(id)?.preset), derived.get(id)?.preset);
    },
    aliased(name) {
      const models = [...sources.presets().models];
      return models.find(([, { aliases }]) => aliases.includes(name))?.[0];
    },
    version: (id) => JSON.stringify([flagsOf(id), own(id)?.model]),
    async derive(id, model) {
      derived.set(id, model);
    },
    forget: (id) => derived.delete(id),
    async given() {
      return (await all()).filter(({ id }) => owned.has(id) && !derived.has(id));
    },
    flagsOf: (id) => (owned.has(id) ? flagsOf(id) : undefined),
    async locate(id) {
      return (await all()).find((one) => one.id === id)?.path;
    },
  };
}

function merged(usual: ModelPreset, own: ModelPreset | undefined): ModelPreset {
  if (!own) return usual;
  return { ...usual, ...own, sampling: { ...usual.sampling, ...own.sampling } };
}

/** The first source of a name counts: presets, then the folder, then the catalog. */
async function located(
  platform: DownloadPlatform,
  { folder, catalog, presetFolder = "", presets }: OnDemandSources,
): Promise<Located[]> {
  const settings = [...presets().models];
  const listed = withShownNames(await listModels(platform));
  const aliasesOf = (id: string): readonly string[] => presets().models.get(id)?.aliases ?? [];
  const found = new Map<string, Located>();
  const add = (
    source: NonNullable<Located["source"]>,
    { id, path, bytes }: Pick<Located, "id" | "path" | "bytes">,
    more: readonly string[] = [],
  ): void => {
    if (found.has(id)) return;
    const aliases = [...new Set([...aliasesOf(id), ...more])].filter((one) => one !== id);
    found.set(id, { id, path, bytes, file: lastPart(path), aliases, source });
  };
  for (const [id, { model }] of settings) {
    if (model === undefined) continue;
    const known = listed.get(model);
    const path = known?.path ?? platform.absolute(within(presetFolder, model, platform));
    const facts = known ? undefined : await platform.stat(path).catch(() => undefined);
    add("preset", { id, path, bytes: known?.bytes ?? facts?.bytes ?? 0 });
  }
  if (folder !== undefined) {
    for (const { name, path, bytes } of await folderModels(folder, platform)) {
      const id = name.replace(/\.gguf$/i, "");
      add("models_dir", { id, path, bytes }, [name]);
    }
  }
  for (const [id, listing] of listed) {
    const { path, bytes } = listing;
    if (catalog && path !== undefined) add("cache", { id, path, bytes }, hubNames(listing));
  }
  return [...found.values()];
}

/** The names that llama.cpp gives to a model of the hub: its repository, and the same with its type. */
function hubNames(listing: ModelListing): string[] {
  const names = otherNames(listing).filter((name) => name.startsWith("hf:"));
  return names.flatMap((name) => [name, name.slice("hf:".length)]);
}

/** A path of the file of presets is relative to that file. */
function within(folder: string, path: string, platform: DownloadPlatform): string {
  const isAbsolute = /^(?:[\\/~]|[A-Za-z]:)/.test(path);
  return isAbsolute || folder === "" ? path : platform.join(folder, path);
}

interface FolderModel {
  readonly name: string;
  readonly path: string;
  readonly bytes: number;
}

/** Reads --models-dir as llama-server does: GGUF files, and subfolders that hold the files of one model. */
async function folderModels(folder: string, platform: DownloadPlatform): Promise<FolderModel[]> {
  const models: FolderModel[] = [];
  for (const entry of (await browseFolder(folder, platform)).entries) {
    const { name, path, kind } = entry;
    const isFile = /\.(?:gguf|bin)$/i.test(name);
    if (kind === "model" && (!isFile || isWeights(name))) models.push(entry);
    if (kind !== "folder") continue;
    const inside = await browseFolder(path, platform).catch(() => undefined);
    const first = inside?.entries.find((one) => one.kind === "model" && isWeights(one.name));
    if (first) models.push({ name, path: first.path, bytes: first.bytes });
  }
  return models;
}

/** Projectors of pictures have names of their own, by llama.cpp's convention. */
function isWeights(name: string): boolean {
  return /\.gguf$/i.test(name) && !/^mmproj/i.test(name);
}

function lastPart(path: string): string {
  return path.split(/[\\/]/).findLast((part) => part !== "") ?? path;
}
