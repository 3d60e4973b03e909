// Stored state of models as files (docs/use/cache.md): its contents, and how it is cleared. A composition root: the platform's folders
// before engine/tiers.

import { UsageError } from "../../base/errors.ts";
import { eraseOwners } from "../../engine/tiers/erase.ts";
import { ownerOf } from "../../engine/tiers/owners.ts";
import { defaultCrc32 } from "../../engine/tiers/segment.ts";
import { type StoredModel, storedModels } from "../../engine/tiers/state-about.ts";
import type { BlockFolders } from "../../platform/block-files.ts";
import { currentPlatform } from "../../platform/current.ts";

/** Copies of state on disk. */
export interface StoredState {
  /** The path of its folder. */
  path: string;
  /** The bytes of all models. */
  bytes: number;
  /** Bytes that are free there; undefined where that is not known. */
  freeBytes: number | undefined;
  /** The latest first. */
  models: StoredModelState[];
}

/** Copies of one model and way of computing it. */
export interface StoredModelState {
  /** The folder's name. */
  folder: string;
  /** The model's file; "" if the folder does not say. */
  model: string;
  kvType: string;
  backend: string;
  bytes: number;
  files: number;
  /** In ms since 1970; 0: it is empty. */
  usedAt: number;
}

export interface StoredStateOptions {
  /** Default: "state" in the cache folder. */
  cacheFolder?: string | undefined;
}

async function foldersOf({ cacheFolder }: StoredStateOptions): Promise<BlockFolders> {
  const platform = await currentPlatform();
  if (!platform.blockFolders) {
    throw new UsageError("stored state: there is no place for it on this platform");
  }
  return await platform.blockFolders(cacheFolder);
}

/** Lists the stored state; reads no conversation. */
export async function storedState(options: StoredStateOptions = {}): Promise<StoredState> {
  const folders = await foldersOf(options);
  const models = (await storedModels(folders)).map(described);
  return {
    path: folders.path,
    bytes: models.reduce((sum, { bytes }) => sum + bytes, 0),
    freeBytes: await folders.freeBytes(),
    models,
  };
}

/**
 * Removes the stored state of a model, by the name that storedState() gives it, with or without ".gguf", or by its folder; without a
 * name, of all models. Open models begin new files. Returns the removed state.
 */
export async function clearStoredState(
  options: StoredStateOptions & { model?: string | undefined } = {},
): Promise<StoredModelState[]> {
  const folders = await foldersOf(options);
  const all = (await storedModels(folders)).map(described);
  const { model } = options;
  const chosen = model === undefined ? all : all.filter((one) => isStoredAs(one, model));
  for (const { folder } of chosen) await folders.remove(folder);
  return chosen;
}

/** Removes the copies on disk, for all models, of state that only these conversations have (GenerateOptions.conversation). */
export async function forgetStoredConversations(
  conversations: readonly string[],
  options: StoredStateOptions = {},
): Promise<void> {
  const folders = await foldersOf(options);
  const owners = conversations.map((id) => ownerOf(id));
  for (const name of await folders.names()) {
    const folder = await folders.folder(name);
    await eraseOwners(folder, name, owners, folders.crc32 ?? defaultCrc32);
  }
}

function described({ folder, about, bytes, segments, usedAt }: StoredModel): StoredModelState {
  const { model = "", kvType = "", backend = "" } = about ?? {};
  return { folder, model, kvType, backend, bytes, files: segments, usedAt };
}

/** Whether a user may call it by this name: a path, a file's name with or without ".gguf", or a folder. */
export function isStoredAs({ folder, model }: StoredModelState, name: string): boolean {
  const base = name.split(/[\\/]/).at(-1)!;
  const names = [name, base, `${base}.gguf`];
  return folder === name || (model !== "" && names.includes(model));
}
