// Presets: named settings. The server stores them, so that every browser has them.

import type { Preset, SessionSettings, SettingsChange } from "../api-types.ts";
import { client } from "./connection.ts";
import { Store } from "./store.ts";

export const presets: Store<readonly Preset[]> = new Store<readonly Preset[]>([]);

export async function loadPresets(): Promise<void> {
  presets.set(await client.presets());
}

export async function savePreset(name: string, settings: SessionSettings): Promise<void> {
  const { summary: _, ...kept } = settings; // it belongs to its chat
  await client.savePreset({ name, settings: kept });
  await loadPresets();
}

export async function deletePreset(name: string): Promise<void> {
  await client.deletePreset(name);
  await loadPresets();
}

/** The change from some settings to a preset's: settings that it does not have are removed. */
export function changeTo({ settings }: Preset, now: SessionSettings): SettingsChange {
  const none = Object.fromEntries(
    Object.keys(now).flatMap((name) => (name === "summary" ? [] : [[name, null]])),
  );
  return { ...none, ...settings };
}

/** The preset that equals some settings. */
export function presetOf(all: readonly Preset[], now: SessionSettings): Preset | undefined {
  const { summary: _, ...mine } = now;
  return all.find(({ settings }) => same(settings, mine));
}

function same(a: SessionSettings, b: SessionSettings): boolean {
  const sorted = (settings: SessionSettings): string =>
    JSON.stringify(Object.entries(settings).sort(([x], [y]) => (x < y ? -1 : 1)));
  return sorted(a) === sorted(b);
}
