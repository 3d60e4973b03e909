// The models: served ones and available ones. Polled while a download or a load is running.

import type { Poll } from "../../../../src/base/backoff.ts";
import type { ListedModel, LoadOptions, ModelList, ServedModel } from "../api-types.ts";
import { client, follow } from "./connection.ts";
import { preferModel } from "./preferences.ts";
import { Store } from "./store.ts";

export interface ModelsState extends ModelList {
  loaded: boolean;
  /** The reason why the progress of a download or a load cannot be read; null: it can. */
  problem: string | null;
}

export const models: Store<ModelsState> = new Store<ModelsState>({
  models: [],
  served: [],
  memory: [],
  pages: {},
  place: { folder: null, usedBytes: 0, freeBytes: undefined, memoryBytes: 0, freeMemoryBytes: 0 },
  isLocal: false,
  loaded: false,
  problem: null,
});

const pollMs = 400;
let polling: Poll | undefined;

/** Models that were requested here and are not loaded yet. */
const awaited = new Set<string>();

/** A user who loads a model wants to chat with it, or to write a story if it does not chat. */
function useLoaded(list: ModelList): void {
  for (const name of awaited) {
    const listed = list.models.find((model) => model.name === name);
    if (listed && isBusy(listed)) continue;
    awaited.delete(name);
    const served = list.served.find(({ id }) => id === name);
    if (!served?.info.generates || listed?.task?.error) continue;
    preferModel(served.info.hasChatTemplate ? "chat" : "story", name);
  }
}

function take(list: ModelList): void {
  useLoaded(list);
  models.set({ ...list, loaded: true, problem: null });
  if (isMoving(list)) {
    polling ??= follow(refreshModels, pollMs, (problem) => models.patch({ problem }));
  } else {
    polling?.stop();
    polling = undefined;
  }
}

function isMoving({ memory, models: all }: ModelList): boolean {
  return memory.some(({ value }) => value === "loading") || all.some(isBusy);
}

/** Called after a problem: does not wait for the next poll. */
export function refreshNow(): void {
  polling?.now();
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

/** The model of a session; without a name, the first that writes text. */
export function servedModel({ served }: ModelsState, name: string | null): ServedModel | undefined {
  return name === null ? writing(served)[0] : served.find(({ id }) => id === name);
}

/** Without encoders, which write no text. */
export function writing(served: readonly ServedModel[]): readonly ServedModel[] {
  return served.filter(({ info }) => info.generates);
}

/**
 * The model of a new conversation: the one that was chosen last for this page, the server's for it, or the first. A chat
 * takes one that can chat, as long as there is one.
 */
export function pageModel(
  { served, pages }: Pick<ModelsState, "served" | "pages">,
  mode: "chat" | "story",
  preferred: string | null,
): string | null {
  const texts = writing(served);
  const able = mode === "chat" ? texts.filter(({ info }) => info.hasChatTemplate) : texts;
  const wanted = [preferred, pages[mode]];
  const found = wanted.find((name) => able.some(({ id }) => id === name)) ?? able[0]?.id;
  return found ?? texts[0]?.id ?? null;
}

/** Does work for which the server may have to load a model again, and shows the progress of that. */
export async function whileLoading<T>(name: string | null, work: () => Promise<T>): Promise<T> {
  const { loaded, served } = models.value;
  if (name === null || !loaded || served.some(({ id }) => id === name)) return await work();
  const showing = follow(refreshModels, pollMs);
  try {
    return await work();
  } finally {
    showing.stop();
    void refreshModels().catch(() => {});
  }
}
