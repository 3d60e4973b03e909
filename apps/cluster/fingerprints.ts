// The prefixes that a worker holds, in few bytes: a hash for each block of a prompt and all blocks before it. Two prompts with a common
// prefix have the same first hashes, so the number of leading hashes that a worker knows is the number of blocks that it need not
// compute.
//
// A fingerprint only routes. A collision, or a prefix that has left the cache since, costs time and changes no text.

import { fromBase64, toBase64 } from "./wire.ts";

/** Tokens of a block: that of the KV cache. */
const BLOCK = 32;
/** Blocks of one prompt that count: a common prefix of 4096 tokens is enough. */
const MOST_OF_PROMPT = 128;
/** Blocks that a worker announces, about 5 KB of a heartbeat. */
const MOST_HELD = 1024;

/** A hash for each whole block, over it and all before it. */
export function blockHashes(tokens: readonly number[]): number[] {
  const hashes: number[] = [];
  const blocks = Math.min(MOST_OF_PROMPT, Math.floor(tokens.length / BLOCK));
  let hash = 0x811c9dc5;
  for (let i = 0; i < blocks * BLOCK; i++) {
    // FNV-1a, over the three bytes that a token id takes.
    for (let shift = 0; shift < 24; shift += 8) {
      hash = Math.imul(hash ^ ((tokens[i]! >>> shift) & 0xff), 0x01000193);
    }
    if (i % BLOCK === BLOCK - 1) hashes.push(hash >>> 0);
  }
  return hashes;
}

/** The blocks that were used last, no more than the KV cache has room for. */
export class HeldPrefixes {
  readonly #most: number;
  /** In order of use, the oldest first. */
  readonly #hashes = new Set<number>();
  #text: string | undefined;

  constructor(cacheTokens: number) {
    this.#most = Math.max(1, Math.min(MOST_HELD, Math.floor(cacheTokens / BLOCK)));
  }

  add(tokens: readonly number[]): void {
    // The last blocks first: when room is short, the beginning of a prompt, which others share, leaves last.
    for (const hash of blockHashes(tokens).reverse()) {
      this.#hashes.delete(hash);
      this.#hashes.add(hash);
    }
    for (const hash of this.#hashes) {
      if (this.#hashes.size <= this.#most) break;
      this.#hashes.delete(hash);
    }
    this.#text = undefined;
  }

  clear(): void {
    this.#hashes.clear();
    this.#text = undefined;
  }

  toString(): string {
    this.#text ??= toBase64(new Uint8Array(Uint32Array.from(this.#hashes).buffer));
    return this.#text;
  }
}

export function readHeld(text: string): ReadonlySet<number> {
  return new Set(new Uint32Array(fromBase64(text).buffer));
}

/** The number of leading blocks of a prompt that are held. */
export function heldBlocks(hashes: readonly number[], held: ReadonlySet<number>): number {
  const missing = hashes.findIndex((hash) => !held.has(hash));
  return missing < 0 ? hashes.length : missing;
}
