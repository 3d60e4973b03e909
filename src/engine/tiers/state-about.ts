// The description of a folder of stored state, for users: a small file beside its segments, without any text. Keys are hashes, so
// only this file says which model it was, and how its computation differs from the current one.

import type { BlockFolder, BlockFolders } from "../../platform/block-files.ts";
import { SEGMENT_EXTENSION } from "./segment.ts";

/** All that a folder's key was made from, by name. */
export interface StateAbout {
  /** The model's name, and its file's. */
  readonly model: string;
  readonly weights: string;
  readonly graph: string;
  readonly kvType: string;
  readonly backend: string;
  readonly kernels: string;
  readonly exact: string;
  readonly rounding: string;
}

/** A folder of stored state. */
export interface StoredModel {
  readonly folder: string;
  /** undefined: its contents are not described. */
  readonly about: StateAbout | undefined;
  readonly bytes: number;
  readonly segments: number;
  /** When it was last used, in ms since 1970. */
  readonly usedAt: number;
}

const ABOUT_FILE = "about.json";
/** A file of this kind is not larger. */
const MOST_BYTES = 65_536;

const words: { readonly [K in keyof StateAbout]: string } = {
  model: "the model's name",
  weights: "the model's weights",
  graph: "what is computed of the model",
  kvType: "the type of the KV cache",
  backend: "the backend",
  kernels: "the kernels",
  exact: "--exact",
  rounding: "how kernels round",
};

/** Writes it if it is missing. Nothing depends on it, so a failure is ignored. */
export async function writeAbout(folder: BlockFolder, about: StateAbout): Promise<void> {
  const writer = await folder.create(ABOUT_FILE).catch(() => undefined);
  if (!writer) return;
  const bytes = new TextEncoder().encode(`${JSON.stringify(about, null, 2)}\n`);
  await writer.write(0, bytes).catch(() => undefined);
  await writer.close().catch(() => undefined);
}

/** undefined: there is none, or it is damaged. */
export async function readAbout(folder: BlockFolder): Promise<StateAbout | undefined> {
  const reader = await folder.open(ABOUT_FILE).catch(() => undefined);
  if (!reader) return undefined;
  try {
    const bytes = new Uint8Array(MOST_BYTES);
    const read = await reader.read(0, bytes);
    const found: unknown = JSON.parse(new TextDecoder().decode(bytes.subarray(0, read)));
    if (typeof found !== "object" || found === null) return undefined;
    const fields = found as Record<string, unknown>;
    const keys = Object.keys(words) as (keyof StateAbout)[];
    const texts = keys.map((key) => [key, String(fields[key] ?? "").slice(0, 500)]);
    return Object.fromEntries(texts) as unknown as StateAbout;
  } catch {
    return undefined;
  } finally {
    await reader.close().catch(() => undefined);
  }
}

/** All folders of stored state, the latest first. */
export async function storedModels(folders: BlockFolders): Promise<StoredModel[]> {
  const found: StoredModel[] = [];
  for (const name of await folders.names()) {
    const folder = await folders.folder(name);
    const files = (await folder.list()).filter((file) => file.name.endsWith(SEGMENT_EXTENSION));
    found.push({
      folder: name,
      about: await readAbout(folder),
      bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
      segments: files.length,
      usedAt: files.reduce((latest, { usedAt }) => Math.max(latest, usedAt), 0),
    });
  }
  return found.sort((a, b) => b.usedAt - a.usedAt);
}

/** The difference between a model's earlier computation and the current one: a clause; undefined: no known difference. */
export function difference(before: StateAbout, now: StateAbout): string | undefined {
  const keys = (Object.keys(words) as (keyof StateAbout)[]).filter(
    (key) => before[key] !== now[key],
  );
  if (keys.length === 0) return undefined;
  const told = keys.map((key) => {
    const isHash = key === "weights" || key === "graph" || key === "rounding";
    return isHash
      ? `${words[key]} changed`
      : `${words[key]} was ${before[key] || "another"}, and is ${now[key] || "another"}`;
  });
  return told.join("; ");
}
