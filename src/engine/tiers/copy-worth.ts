// Decides whether copies of state pay. A copy is worth making if continuing from it takes less time than computing the text again. A GPU may compute
// a prompt faster than its keys and values travel to the host and to disk: then nothing is copied, and a text that left the KV cache is computed
// again.
//
// Both speeds are those of this model on this machine, measured while it runs, each at its best: a copy that waited behind a batch does not show the
// cost of copying. After PROBE_TEXTS texts, one that ends while no other generation runs is copied all the same; after MOST_TEXTS, any text is, so
// that a decision is never older than that.

import type { CacheStatus } from "../../api/api.ts";

/**
 * Copies pay if they take less than this part of computing: most are never used, used ones are copied back as well, and meanwhile the engine's thread
 * gives the GPU no work (a block of 16 MB takes it 5 ms).
 */
const DEAR = 0.5;
/** Smaller ones say little of the speed. */
const FEWEST_TOKENS = 16;
const FEWEST_BYTES = 2 ** 18;
/** The factor on an old best with every measurement: a machine may become slower. */
const DECAY = 0.98;
const PROBE_TEXTS = 32;
/** Others wait for a copy: 200 tokens of a 7B take the engine's thread 30 ms. */
const MOST_TEXTS = 1024;
/** The number of tokens in texts for users. */
const SHOWN_TOKENS = 1000;

export class CopyWorth {
  /** The bytes of a token in layers that keep all tokens. */
  readonly #bytesPerToken: number;
  #tokensPerMs = 0;
  #bytesPerMs = 0;
  /** Since one was copied. */
  #texts = 0;
  readonly #othersRun: () => boolean;

  /** `othersRun`: whether generations run besides the one whose text may be copied. Default: none do. */
  constructor(bytesPerToken: number, othersRun: () => boolean = () => false) {
    this.#bytesPerToken = bytesPerToken;
    this.#othersRun = othersRun;
  }

  /** A batch of a prompt took so long. */
  computed(tokens: number, ms: number): void {
    if (tokens < FEWEST_TOKENS || ms <= 0) return;
    this.#tokensPerMs = Math.max(this.#tokensPerMs * DECAY, tokens / ms);
  }

  /** Copying out of the backend, into memory and to disk, took so long. */
  copied(bytes: number, ms: number): void {
    if (bytes < FEWEST_BYTES || ms <= 0) return;
    this.#bytesPerMs = Math.max(this.#bytesPerMs * DECAY, bytes / ms);
  }

  /** Whether copies do not pay; asked after every token. */
  get isDear(): boolean {
    if (this.#tokensPerMs === 0 || this.#bytesPerMs === 0) return false;
    return this.#bytesPerToken / this.#bytesPerMs > DEAR / this.#tokensPerMs;
  }

  /** The times of computing and copying 1,000 tokens, if copies do not pay; undefined: they do, or it is not known yet. */
  get dear(): CacheStatus["dear"] {
    if (!this.isDear) return undefined;
    return {
      computeMs: SHOWN_TOKENS / this.#tokensPerMs,
      copyMs: (SHOWN_TOKENS * this.#bytesPerToken) / this.#bytesPerMs,
    };
  }

  /** Whether a text that ends here, or pauses, is copied. */
  takesText(): boolean {
    if (!this.isDear) return true;
    this.#texts++;
    if (this.#texts < (this.#othersRun() ? MOST_TEXTS : PROBE_TEXTS)) return false;
    this.#texts = 0;
    return true;
  }
}
