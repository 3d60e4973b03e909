// Where one was: the conversation that Chat and Story last had open, and how far each was scrolled. Per tab, and a reload
// keeps it: going to another page and back leads to the same place.

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
    // It holds until the page is closed.
  }
}

/** A conversation that is gone is no place to return to. */
export function forgetPlace(id: string): void {
  for (const mode of ["chat", "story"] as const) {
    if (lastOpen.value[mode] === id) set(mode, null);
  }
}

/** Follows the address. */
export function watchPlaces(): void {
  const look = (): void => {
    const now: Route | undefined = route.value;
    if (now?.page === "chat" || now?.page === "story") set(now.page, now.id);
  };
  look();
  route.watch(look);
}

/** How far a page or conversation was scrolled when it was left; none: at its end. */
export const scrolled: Map<string, number> = new Map();
