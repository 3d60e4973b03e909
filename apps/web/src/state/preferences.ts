// Preferences stored in this browser: the theme, the models for new conversations. No important data is only here; the
// server stores the conversations, and their settings are their own.

import { Store } from "./store.ts";

export type Theme = "auto" | "light" | "dark";

export interface Preferences {
  theme: Theme;
  /** The models for new conversations; null: the page chooses (pageModel() in models.ts). */
  models: Readonly<Record<"chat" | "story", string | null>>;
  /** Whether single-key shortcuts are on. */
  shortcuts: boolean;
}

const key = "lantern-preferences";

const defaults: Preferences = {
  theme: "auto",
  models: { chat: null, story: null },
  shortcuts: true,
};

function read(): Preferences {
  try {
    const found = JSON.parse(localStorage.getItem(key) ?? "{}") as Partial<Preferences>;
    // Other fields of older versions are dropped.
    const { theme, models, shortcuts } = { ...defaults, ...found };
    return { theme, models, shortcuts };
  } catch {
    return defaults; // not ours, or storage is disabled
  }
}

export const preferences: Store<Preferences> = new Store(read());

export function prefer(change: Partial<Preferences>): void {
  preferences.patch(change);
  try {
    localStorage.setItem(key, JSON.stringify(preferences.value));
  } catch {
    // Storage is full or disabled: the preferences last until the page is closed.
  }
}

/** Applies the theme to the page. */
export function applyTheme(): void {
  document.documentElement.dataset.theme = preferences.value.theme;
}

/** The model for new conversations of a page. */
export function preferModel(mode: "chat" | "story", model: string): void {
  prefer({ models: { ...preferences.value.models, [mode]: model } });
}
