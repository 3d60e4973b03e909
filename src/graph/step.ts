// One step of the engine: which tokens are computed, at which positions of which sequences, and whose logits are wanted.
//
// A step is filled anew for every run and allocates nothing: the arrays are as long as the plan's largest step. Tokens
// of several sequences may stand in one step in any order, as long as a sequence's own tokens are in theirs.

import type { PlanLimits } from "./plan.ts";

/** Tokens per block of the paged KV cache. */
export const KV_BLOCK_TOKENS = 32;

/** Where a sequence's keys and values lie: blocks[position / 32] is the cache block, position % 32 the row in it. */
export interface BlockTable {
  readonly blocks: Int32Array;
}

export class Step {
  readonly limits: PlanLimits;
  tokenCount = 0;
  outputCount = 0;
  /** Token ids: [tokens]. */
  readonly tokens: Int32Array;
  /** Position of each token in its sequence: [tokens]. */
  readonly positions: Int32Array;
  /** Cache blocks of each token's sequence: [tokens]. */
  readonly tables: BlockTable[];
  /** Rows (indices into tokens) whose logits are wanted: [outputs]. */
  readonly outputRows: Int32Array;

  constructor(limits: PlanLimits) {
    this.limits = limits;
    this.tokens = new Int32Array(limits.maxTokens);
    this.positions = new Int32Array(limits.maxTokens);
    this.tables = new Array<BlockTable>(limits.maxTokens);
    this.outputRows = new Int32Array(limits.maxOutputs);
  }

  clear(): void {
    this.tokenCount = 0;
    this.outputCount = 0;
  }

  /** Adds a token; with `wantsLogits`, returns its row among the outputs (else -1). */
  add(token: number, position: number, table: BlockTable, wantsLogits: boolean): number {
    const row = this.tokenCount++;
    this.tokens[row] = token;
    this.positions[row] = position;
    this.tables[row] = table;
    if (!wantsLogits) return -1;
    this.outputRows[this.outputCount] = row;
    return this.outputCount++;
  }
}
