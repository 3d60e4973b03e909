// The models: served ones and available ones. Polled while a download or a load is running.

import type { ListedModel, LoadOptions, ModelList, ServedModel } from "../api-types.ts";
import { client } from "./connection.ts";
import { prefer } from "./preferences.ts";
import { Store } from "./store.ts";

export interface ModelsState extends ModelList {
  loaded: boolean;
}

export const models: Store<ModelsState> = new Store<ModelsState>({
  models: [],
  served: [],
  place: { folder: null, usedBytes: 0, freeBytes: undefined, memoryBytes: 0, freeMemoryBytes: 0 },
  isLocal: false,
  loaded: false,
});

const pollMs = 400;
let polling = false;

/** Models that were requested here and are not loaded yet. */
const awaited = new Set<string>();

/** A user who loads a chat model wants to chat with it. */
function useLoaded(list: ModelList): void {
  for (const name of awaited) {
    const listed = list.models.find((model) => model.name === name);
    if (listed && isBusy(listed)) continue;
    awaited.delete(name);
    const served = list.served.find(({ id }) => id === name);
    if (served?.info.hasChatTemplate && !listed?.task?.error) prefer({ model: name });
  }
}

function take(list: ModelList): void {
  useLoaded(list);
  models.set({ ...list, loaded: true });
  if (polling || !list.models.some(isBusy)) return;
  polling = true;
  const poll = async (): Promise<void> => {
    polling = false;
    await refreshModels().catch(() => {});
  };
  setTimeout(() => void poll(), pollMs);
}

export function isBusy({ task }: ListedModel): boolean {
  return task !== null && task.error === null;
}

export async function refreshModels(): Promise<void> {
  take(await client.models());
}

export async function downloadModel(name: string): Promise<void> {
  take(await client.download(name));
}

export async function loadModel(name: string, options?: LoadOptions): Promise<void> {
  awaited.add(name);
  take(await client.load(name, options));
}

export async function unloadModel(name: string): Promise<void> {
  take(await client.unload(name));
}

export async function deleteModel(name: string): Promise<void> {
  take(await client.deleteModel(name));
}

/** Adds a file or folder of this machine, and loads it. */
export async function openPath(path: string): Promise<void> {
  const { name, list } = await client.linkModel(path);
  take(list);
  await loadModel(name);
}

export async function cancelTask(name: string): Promise<void> {
  take(await client.cancelTask(name));
}

/** The model of a session; without a name, the first. */
export function servedModel({ served }: ModelsState, name: string | null): ServedModel | undefined {
  return name === null ? served[0] : served.find(({ id }) => id === name);
}
