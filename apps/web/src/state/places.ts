// Remembers the last positions: the conversation that Chat and Story last had open, and their scroll positions. Per
// tab, and kept over a reload: a user who goes to another page and back finds the same conversation and position.

import { type Route, route } from "./route.ts";
import { Store } from "./store.ts";

export type LastOpen = Readonly<Record<"chat" | "story", string | null>>;

const key = "lantern-places";

export const lastOpen: Store<LastOpen> = new Store<LastOpen>(read());

function read(): LastOpen {
  try {
    const found = JSON.parse(sessionStorage.getItem(key) ?? "{}") as Partial<LastOpen>;
    const id = (value: unknown): string | null => (typeof value === "string" ? value : null);
    return { chat: id(found.chat), story: id(found.story) };
  } catch {
    return { chat: null, story: null };
  }
}

function set(mode: "chat" | "story", id: string | null): void {
  if (lastOpen.value[mode] === id) return;
  lastOpen.set({ ...lastOpen.value, [mode]: id });
  try {
    sessionStorage.setItem(key, JSON.stringify(lastOpen.value));
  } catch {
    // It lasts until the page is closed.
  }
}

/** A deleted conversation must not be opened again. */
export function forgetPlace(id: string): void {
  for (const mode of ["chat", "story"] as const) {
    if (lastOpen.value[mode] === id) set(mode, null);
  }
}

/** Follows the URL. */
export function watchPlaces(): void {
  const look = (): void => {
    const now: Route | undefined = route.value;
    if (now?.page === "chat" || now?.page === "story") set(now.page, now.id);
  };
  look();
  route.watch(look);
}

/** The scroll position of a page or conversation when it was left; none: at its end. */
export const scrolled: Map<string, number> = new Map();
