// The distance of a text's checkpoints in tokens: the positions at which the state of layers with a window, and recurrent state, is
// copied. A text that branches off between two of them computes the tokens after the earlier one again.
//
// The rule: the smallest distance, doubled from a batch (recurrent state) or a block (windows) on, at which
// - computing it takes WORTH_MS: closer ones save too little to notice;
// - copying takes at most COPY_SHARE of the time of computing;
// - those of one context take at most BUDGET_SHARE of the budget.
// Speeds are those of this model on this machine, measured while it runs; before that they are CHECKPOINT_TOKENS apart.

import type { CacheStatus } from "../../api/api.ts";
import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";

/** Used if nothing was measured, or nothing is copied. */
export const CHECKPOINT_TOKENS: number = 16 * KV_BLOCK_TOKENS;
const MOST_TOKENS: number = 8 * CHECKPOINT_TOKENS;
const WORTH_MS = 100;
const COPY_SHARE = 0.05;
const BUDGET_SHARE = 0.25;
/** Fewer tokens at once say little of the speed of a prompt. */
const FEWEST_TIMED = 16;
/** Bytes that are copied before their speed counts. */
const FEWEST_BYTES = 2 ** 20;
/** The share of the past in a mean. */
const INERTIA = 0.8;

/** The facts that decide the distance of checkpoints, besides speeds. */
export interface CheckpointParts {
  readonly kinds: readonly {
    readonly group: number | undefined;
    readonly unitBytes: number;
    readonly needsAll: boolean;
    checkpointUnits(tokens: number): number;
  }[];
  readonly contextSize: number;
  /** Tokens of a whole batch of a prompt: a checkpoint of recurrent state ends a batch. */
  readonly batchTokens: number;
  /** The budget of the largest tier. */
  readonly budgetBytes: number;
}

export class Checkpoints {
  readonly #parts: CheckpointParts;
  /** Tokens from one to the next: a power of two of blocks, so that coarser ones are among finer ones. */
  tokens: number = CHECKPOINT_TOKENS;
  #tokensPerMs = 0;
  #bytesPerMs = 0;
  #copiedBytes = 0;
  #copiedMs = 0;
  #why = "nothing was measured yet";

  constructor(parts: CheckpointParts) {
    this.#parts = parts;
  }

  /** Whether the model has layers that need them. */
  get isNeeded(): boolean {
    return this.#parts.kinds.some(({ needsAll }) => !needsAll);
  }

  /** A batch of a prompt took so long. */
  computed(tokens: number, ms: number): void {
    if (tokens < FEWEST_TIMED || ms <= 0) return;
    const speed = tokens / ms;
    this.#tokensPerMs =
      this.#tokensPerMs === 0 ? speed : INERTIA * this.#tokensPerMs + (1 - INERTIA) * speed;
    this.#choose();
  }

  /** Copying a unit out of the backend, into memory and to disk, took so long. */
  copied(bytes: number, ms: number): void {
    this.#copiedBytes += bytes;
    this.#copiedMs += ms;
    if (this.#copiedBytes < FEWEST_BYTES || this.#copiedMs <= 0) return;
    this.#bytesPerMs = this.#copiedBytes / this.#copiedMs;
    // New measurements count as much as all earlier ones together.
    if (this.#copiedBytes > 64 * FEWEST_BYTES) {
      this.#copiedBytes /= 2;
      this.#copiedMs /= 2;
    }
  }

  /** Bytes of a checkpoint this many tokens after another. */
  bytes(tokens: number): number {
    return this.#parts.kinds.reduce(
      (sum, kind) => sum + (kind.needsAll ? 0 : kind.checkpointUnits(tokens) * kind.unitBytes),
      0,
    );
  }

  #choose(): void {
    const { kinds, batchTokens } = this.#parts;
    if (!this.isNeeded || this.#parts.budgetBytes <= 0) return;
    const hasSlots = kinds.some(({ group }) => group === undefined);
    const least = hasSlots ? Math.max(KV_BLOCK_TOKENS, batchTokens) : KV_BLOCK_TOKENS;
    let tokens = KV_BLOCK_TOKENS;
    while (tokens < least) tokens *= 2;
    let why = hasSlots ? `a batch has ${batchTokens} tokens` : "that is a block";
    for (; tokens < MOST_TOKENS; tokens *= 2) {
      const problem = this.#problem(tokens);
      if (problem === undefined) break;
      why = problem;
    }
    this.tokens = tokens;
    this.#why = why;
  }

  /** Why they are not to be so close; undefined: they may. */
  #problem(tokens: number): string | undefined {
    const { contextSize, budgetBytes } = this.#parts;
    const ms = tokens / this.#tokensPerMs;
    const bytes = this.bytes(tokens);
    if (ms < WORTH_MS) return `computing ${tokens} tokens takes less than ${WORTH_MS} ms`;
    if (this.#bytesPerMs > 0 && bytes / this.#bytesPerMs > COPY_SHARE * ms) {
      return `copying one every ${tokens} tokens would take more than ${COPY_SHARE * 100}% of the time`;
    }
    if ((contextSize / tokens) * bytes > BUDGET_SHARE * budgetBytes) {
      return `those of a context, every ${tokens} tokens, would take more than a quarter of the budget`;
    }
    return undefined;
  }

  /** The status for EngineStatus; undefined: the model needs no checkpoints. */
  get status(): CacheStatus["checkpoints"] {
    if (!this.isNeeded) return undefined;
    return {
      tokens: this.tokens,
      bytes: this.bytes(this.tokens),
      why: this.#why,
      ...(this.#tokensPerMs > 0 && { computeMs: this.tokens / this.#tokensPerMs }),
      ...(this.#bytesPerMs > 0 && { copyMs: this.bytes(this.tokens) / this.#bytesPerMs }),
    };
  }
}
