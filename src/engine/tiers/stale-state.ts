// State that was stored under another key for the same model, or for another of its name: after the file was replaced, with another
// type of the KV cache, on another backend. It is not used. A prompt that is computed although it lies there is told why.

import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import type { BlockFolder, BlockFolders } from "../../platform/block-files.ts";
import { nextKey, type StateKey } from "./keys.ts";
import {
  defaultCrc32,
  RECORD_HEADER_BYTES,
  readRecordHeader,
  SEGMENT_EXTENSION,
  SEGMENT_HEADER_BYTES,
} from "./segment.ts";
import { difference, readAbout, type StateAbout } from "./state-about.ts";

/** Headers that are read at most: a second or so. */
const MOST_RECORDS = 20_000;

/** A folder whose state is not used. Its name is the key before the first token. */
interface StaleFolder {
  readonly root: StateKey;
  readonly what: string;
  readonly keys: ReadonlySet<StateKey>;
}

export class StaleState {
  readonly #folders: BlockFolders;
  readonly #root: StateKey;
  readonly #about: StateAbout;
  /** By folder: the difference, and the keys of the first block of each text. */
  #texts: Promise<readonly StaleFolder[]> | undefined;

  constructor(folders: BlockFolders, root: StateKey, about: StateAbout) {
    this.#folders = folders;
    this.#root = root;
    this.#about = about;
  }

  /** The difference from the way the model was computed when this prompt was stored; undefined: it was not stored. */
  async find(tokens: readonly number[]): Promise<string | undefined> {
    if (tokens.length < KV_BLOCK_TOKENS) return undefined;
    this.#texts ??= this.#look().catch(() => []);
    const first = tokens.slice(0, KV_BLOCK_TOKENS);
    const found = (await this.#texts).find(({ root, keys }) => keys.has(nextKey(root, first)));
    return found?.what;
  }

  async #look(): Promise<StaleFolder[]> {
    const texts: StaleFolder[] = [];
    let left = MOST_RECORDS;
    for (const name of await this.#folders.names()) {
      if (name === this.#root) continue;
      const folder = await this.#folders.folder(name);
      const about = await readAbout(folder);
      const isSame = about?.model === this.#about.model || about?.weights === this.#about.weights;
      const what = about && isSame ? difference(about, this.#about) : undefined;
      if (what === undefined) continue;
      const keys = new Set<StateKey>();
      left = await firstBlocks(folder, name, left, (key) => keys.add(key));
      texts.push({ root: name, what, keys });
    }
    return texts;
  }
}

/** Calls `found` with the key of the first block of each text in a folder; returns the number of records that may still be read. */
async function firstBlocks(
  folder: BlockFolder,
  root: StateKey,
  most: number,
  found: (key: StateKey) => void,
): Promise<number> {
  let left = most;
  const header = new Uint8Array(RECORD_HEADER_BYTES);
  for (const { name, bytes } of await folder.list()) {
    if (!name.endsWith(SEGMENT_EXTENSION)) continue;
    const reader = await folder.open(name);
    if (!reader) continue;
    for (let at = SEGMENT_HEADER_BYTES; at + RECORD_HEADER_BYTES <= bytes && left > 0; left--) {
      if ((await reader.read(at, header)) < RECORD_HEADER_BYTES) break;
      const record = readRecordHeader(header, defaultCrc32);
      if (!record) break;
      if (record.parent === root && record.tokens === KV_BLOCK_TOKENS) found(record.key);
      at += RECORD_HEADER_BYTES + record.bytes;
    }
    await reader.close().catch(() => undefined);
  }
  return left;
}
