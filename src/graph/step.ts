// One step of the engine: which tokens are computed, at which positions of which sequences, and whose logits are wanted.
//
// A step is filled anew for every run and allocates nothing: the arrays are as long as the plan's largest step. Tokens
// of several sequences may stand in one step in any order, as long as a sequence's own tokens are in theirs.

import type { Rows } from "./graph.ts";
import type { PlanLimits } from "./plan.ts";

/** Tokens per block of the paged KV cache. */
export const KV_BLOCK_TOKENS = 32;

/** Which of a step's counts is the number of rows of each kind, where backends keep them behind each other. */
export const countOf: Readonly<Record<Rows, number>> = { tokens: 0, outputs: 1, logits: 2 };

/** How many rows the values of each kind have in a step. */
export type RowCounts = Readonly<Record<Rows, number>>;

/** Where a sequence's keys and values lie: blocks[position / 32] is the cache block, position % 32 the row in it. */
export interface BlockTable {
  readonly blocks: Int32Array;
}

export class Step {
  readonly limits: PlanLimits;
  tokenCount = 0;
  outputCount = 0;
  /** Whether anybody wants logits of the outputs; otherwise the output matrix is not read. */
  wantsLogits = true;
  /** Token ids: [tokens]. */
  readonly tokens: Int32Array;
  /** Position of each token in its sequence: [tokens]. */
  readonly positions: Int32Array;
  /** Cache blocks of each token's sequence: [tokens]. */
  readonly tables: BlockTable[];
  /** Rows (indices into tokens) that something is read of: [outputs]. */
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
    this.wantsLogits = true;
  }

  /** How many rows a value of this kind has in this step. */
  count(rows: Rows): number {
    if (rows === "tokens") return this.tokenCount;
    return rows === "outputs" || this.wantsLogits ? this.outputCount : 0;
  }

  /** All of them; a new object, so not for every token. */
  counts(): RowCounts {
    return {
      tokens: this.tokenCount,
      outputs: this.outputCount,
      logits: this.count("logits"),
    };
  }

  /** Adds a token; where it is an output, returns its row among them (else -1). */
  add(token: number, position: number, table: BlockTable, isOutput: boolean): number {
    const row = this.tokenCount++;
    this.tokens[row] = token;
    this.positions[row] = position;
    this.tables[row] = table;
    if (!isOutput) return -1;
    this.outputRows[this.outputCount] = row;
    return this.outputCount++;
  }
}
