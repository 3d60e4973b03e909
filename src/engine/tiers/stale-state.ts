// State that was stored under another key for the same model, or for another of its name: after the file was replaced, with another
// type of the KV cache, on another backend. It is not used. A prompt that is computed although it lies there is told why.

import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import type { BlockFolder, BlockFolders } from "../../platform/block-files.ts";
import type { StateKey } from "./keys.ts";
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

export class StaleState {
  readonly #folders: BlockFolders;
  readonly #root: StateKey;
  readonly #about: StateAbout;
  /** What differs, by the first block of each text. */
  #texts: Promise<ReadonlyMap<string, string>> | undefined;

  constructor(folders: BlockFolders, root: StateKey, about: StateAbout) {
    this.#folders = folders;
    this.#root = root;
    this.#about = about;
  }

  /** What differs from how the model was computed when this prompt was stored; undefined: it was not. */
  async find(tokens: readonly number[]): Promise<string | undefined> {
    if (tokens.length < KV_BLOCK_TOKENS) return undefined;
    this.#texts ??= this.#look().catch(() => new Map());
    return (await this.#texts).get(tokens.slice(0, KV_BLOCK_TOKENS).join());
  }

  async #look(): Promise<Map<string, string>> {
    const texts = new Map<string, string>();
    let left = MOST_RECORDS;
    for (const name of await this.#folders.names()) {
      if (name === this.#root) continue;
      const folder = await this.#folders.folder(name);
      const about = await readAbout(folder);
      const isSame = about?.model === this.#about.model || about?.weights === this.#about.weights;
      const what = about && isSame ? difference(about, this.#about) : undefined;
      if (what === undefined) continue;
      left = await firstBlocks(folder, name, left, (tokens) => texts.set(tokens.join(), what));
    }
    return texts;
  }
}

/** Calls `found` with the first block of each text in a folder; returns how many records may still be read. */
async function firstBlocks(
  folder: BlockFolder,
  root: StateKey,
  most: number,
  found: (tokens: Int32Array) => void,
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
      if (record.parent === root && record.tokens.length === KV_BLOCK_TOKENS) found(record.tokens);
      at += RECORD_HEADER_BYTES + record.bytes;
    }
    await reader.close().catch(() => undefined);
  }
  return left;
}
