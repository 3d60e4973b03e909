// All conversations and presets as one file, and back. The file is a list of single exports, so the server checks each
// as if it were imported alone; conversations that already exist are left unchanged.

import { sentence } from "../api.ts";
import type { Preset } from "../api-types.ts";
import { client } from "./connection.ts";

const format = "lantern-archive";

interface Archive {
  format: typeof format;
  version: 1;
  exportedAt: number;
  presets: Preset[];
  /** The exports of single sessions. */
  sessions: unknown[];
}

export interface Imported {
  added: number;
  /** Already existed. */
  known: number;
  /** A sentence for each that was refused. */
  refused: string[];
  /** The last one added. */
  last: { mode: "chat" | "story"; id: string } | null;
}

async function allSessions(): Promise<{ id: string; messageCount: number }[]> {
  const found: { id: string; messageCount: number }[] = [];
  let cursor: string | undefined;
  do {
    const page = await client.sessions(cursor);
    found.push(...page.sessions);
    cursor = page.next ?? undefined;
  } while (cursor !== undefined);
  return found;
}

/** `onProgress`: the number of finished ones, and of all. */
export async function exportAll(onProgress: (done: number, all: number) => void): Promise<Blob> {
  const listed = (await allSessions()).filter(({ messageCount }) => messageCount > 0);
  const presets = await client.presets();
  const parts: string[] = [];
  for (const [at, { id }] of listed.entries()) {
    onProgress(at, listed.length);
    parts.push(await (await client.exportSession(id, "json")).text());
  }
  const head = { format, version: 1, exportedAt: Date.now(), presets };
  const text = `${JSON.stringify(head).slice(0, -1)},"sessions":[${parts.join(",\n")}]}`;
  return new Blob([text], { type: "application/json" });
}

/** One file: a conversation, or all of an archive. */
export async function importText(text: string): Promise<Imported> {
  const archive = asArchive(text);
  const result: Imported = { added: 0, known: 0, refused: [], last: null };
  if (!archive) {
    const { mode, id } = await client.importSession(text);
    return { ...result, added: 1, last: { mode, id } };
  }
  const here = new Set((await allSessions()).map(({ id }) => id));
  for (const file of archive.sessions) {
    const id = (file as { session?: { id?: unknown } } | null)?.session?.id;
    if (typeof id === "string" && here.has(id)) {
      result.known++;
      continue;
    }
    try {
      const made = await client.importSession(JSON.stringify(file));
      result.added++;
      result.last = { mode: made.mode, id: made.id };
    } catch (error) {
      result.refused.push(sentence(error));
    }
  }
  result.refused.push(...(await importPresets(archive.presets)));
  return result;
}

/** Presets whose name already exists are not changed. Returns a sentence for each that was refused. */
async function importPresets(presets: unknown): Promise<string[]> {
  if (!Array.isArray(presets)) return [];
  const here = new Set((await client.presets()).map(({ name }) => name));
  const refused: string[] = [];
  for (const preset of presets as Partial<Preset>[]) {
    if (typeof preset?.name !== "string" || here.has(preset.name)) continue;
    try {
      await client.savePreset({ name: preset.name, settings: preset.settings ?? {} });
    } catch (error) {
      refused.push(`The preset “${preset.name}” was not imported. ${sentence(error)}`);
    }
  }
  return refused;
}

function asArchive(text: string): Archive | undefined {
  try {
    const found = JSON.parse(text) as Partial<Archive> | null;
    if (found?.format !== format || !Array.isArray(found.sessions)) return undefined;
    return found as Archive;
  } catch {
    return undefined; // the server reports the error
  }
}
