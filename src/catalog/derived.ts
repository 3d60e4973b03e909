// Models that were made from others with Ollama's API (/api/create, /api/copy): a name, the model they are made from, and their
// parameters. Each is a small JSON file in the folder "made" of the cache folder, so that a damaged file is one model's problem.
//
// The file's name is the model's name, encoded: a damaged file can still be named. Only apps/server/models/derived.ts knows what the
// parameters mean.

import { messageOf, SourceError, UsageError } from "../base/errors.ts";
import type { DownloadPlatform } from "../platform/download.ts";

export interface DerivedModel {
  readonly name: string;
  /** The model that its weights come from. */
  readonly from: string;
  readonly system?: string | undefined;
  /** A Jinja template, or the name of a built-in one. */
  readonly template?: string | undefined;
  /** Digests of the LoRA adapters that it is opened with (Ollama's blobs). */
  readonly adapters?: readonly string[] | undefined;
  /** As Ollama names them. */
  readonly parameters: Readonly<Record<string, unknown>>;
  /** Whether it is opened beside the model that it is made from, because it is opened in another way. */
  readonly isSeparate: boolean;
  /** Seconds since 1970. */
  readonly created: number;
}

/** One file of the folder: the model, or why it cannot be read. */
export interface MadeEntry {
  readonly name: string;
  readonly made?: DerivedModel | undefined;
  readonly problem?: string | undefined;
}

const ending = ".json";
/** The longest encoded name: file systems allow 255 bytes, and a file that is being written has a longer name. */
const longestName = 200;
const version = 1;

export async function listMade(platform: DownloadPlatform): Promise<MadeEntry[]> {
  const entries = (await platform.listFolder(folderOf(platform))) ?? [];
  const files = entries.filter(({ name, folder }) => !folder && name.endsWith(ending));
  const read = async ({ name: file }: { name: string }): Promise<MadeEntry[]> => {
    const name = decoded(file.slice(0, -ending.length));
    if (name === undefined) return []; // not one of these files
    try {
      const text = await platform.readText(platform.join(folderOf(platform), file));
      return text === undefined ? [] : [{ name, made: parse(text, name) }];
    } catch (error) {
      return [{ name, problem: `${file}: ${messageOf(error)}` }];
    }
  };
  const all = (await Promise.all(files.map(read))).flat();
  return all.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** On disk before it returns, and whole or not at all: a crash leaves the old file, or the new one. */
export async function writeDerived(made: DerivedModel, platform: DownloadPlatform): Promise<void> {
  const path = pathOf(made.name, platform);
  const part = `${path}.${platform.processId}.part`;
  await platform.makeFolder(folderOf(platform), { closed: true });
  const bytes = new TextEncoder().encode(`${JSON.stringify({ version, ...made }, null, 2)}\n`);
  try {
    const file = await platform.openAppend(part, 0);
    try {
      await file.append(bytes);
    } finally {
      await file.close();
    }
    await platform.rename(part, path);
  } catch (error) {
    await platform.remove(part).catch(() => {});
    throw error;
  }
}

export async function removeDerived(name: string, platform: DownloadPlatform): Promise<void> {
  await platform.remove(pathOf(name, platform));
}

function folderOf(platform: DownloadPlatform): string {
  return platform.join(platform.cacheFolder, "made");
}

function pathOf(name: string, platform: DownloadPlatform): string {
  if (name === "" || !name.isWellFormed()) {
    throw new UsageError(
      `got ${JSON.stringify(name.slice(0, 40))}, expected a name of Unicode text`,
    );
  }
  const file = encoded(name);
  if (file.length <= longestName) return platform.join(folderOf(platform), `${file}${ending}`);
  throw new UsageError(
    `the name ${JSON.stringify(`${name.slice(0, 40)}...`)} is too long for a file: it takes ${file.length} characters, expected at most ${longestName}`,
  );
}

/** Capitals, too: some file systems do not tell them from small letters. */
function encoded(name: string): string {
  const bytes = [...new TextEncoder().encode(name)];
  return bytes
    .map((byte, at) => {
      const letter = String.fromCharCode(byte);
      const isPlain = /[a-z0-9_-]/.test(letter) || (letter === "." && at > 0);
      return isPlain ? letter : `%${byte.toString(16).padStart(2, "0")}`;
    })
    .join("");
}

function decoded(file: string): string | undefined {
  try {
    const name = decodeURIComponent(file);
    return encoded(name) === file ? name : undefined;
  } catch {
    return undefined;
  }
}

function parse(text: string, name: string): DerivedModel {
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch (error) {
    throw new SourceError(`it is not JSON (${messageOf(error)})`, { cause: error });
  }
  const fields = isRecord(read) ? read : {};
  const expect = (field: string, expected: string, fits: (value: unknown) => boolean): void => {
    if (fits(fields[field])) return;
    const got = JSON.stringify(fields[field])?.slice(0, 60) ?? "nothing";
    throw new SourceError(`"${field}": got ${got}, expected ${expected}`);
  };
  const isText = (value: unknown): boolean => typeof value === "string";
  const isTextOrNone = (value: unknown): boolean => value === undefined || isText(value);
  expect("version", String(version), (value) => value === version);
  expect("name", JSON.stringify(name), (value) => value === name);
  expect("from", "the name of a model", (value) => isText(value) && value !== "");
  expect("system", "a text", isTextOrNone);
  expect("template", "a text", isTextOrNone);
  const isList = (value: unknown): boolean => Array.isArray(value) && value.every(isText);
  expect("adapters", "a list of digests", (value) => value === undefined || isList(value));
  expect("parameters", "an object", isRecord);
  expect("isSeparate", "true or false", (value) => typeof value === "boolean");
  expect("created", "seconds since 1970", (value) => Number.isSafeInteger(value));
  const { version: _, ...made } = fields;
  return made as unknown as DerivedModel;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
