// One batch: which tokens are computed, at which positions of which sequences, and which of them are outputs.
//
// The engine fills the same object for every run and allocates nothing: the arrays are as long as the plan's largest batch.
// The tokens of a sequence are next to each other, at consecutive positions, so that a scan can run over them; add() checks it.

import type { Rows } from "./graph.ts";
import type { PlanLimits } from "./plan.ts";

/** Tokens per block of the paged KV cache. */
export const KV_BLOCK_TOKENS = 32;

/** The index of each kind of rows where backends store the counts of a batch one after the other. */
export const countOf: Readonly<Record<Rows, number>> = { tokens: 0, outputs: 1, logits: 2 };

/** The number of rows of each kind in a batch. */
export type RowCounts = Readonly<Record<Rows, number>>;

/** What a sequence keeps, as a backend sees it. Sequences are told apart by identity. */
export interface BatchSequence {
  /** Where keys and values lie: blocks[position / 32] is the cache block, position % 32 the row in it. */
  readonly blocks: Int32Array;
  /** The same for each group of KV states (KvState.group). Default: all groups use `blocks`. */
  readonly groups?: readonly Int32Array[];
  /** Where recurrent state lies. Default: there is none. */
  readonly slots?: SlotPair | undefined;
}

/** Recurrent state of a sequence: a batch reads slot `from` and writes slot `to`, which is another one. */
export interface SlotPair {
  /** NO_SLOT: zeros. */
  readonly from: number;
  readonly to: number;
}

export const NO_SLOT = -1;

/** The block table of a group of KV states. */
export function tableOf({ blocks, groups }: BatchSequence, group: number): Int32Array {
  return groups?.[group] ?? blocks;
}

export class Batch {
  readonly limits: PlanLimits;
  tokenCount = 0;
  outputCount = 0;
  /** Whether logits of the outputs are wanted; otherwise the output matrix is not read. */
  wantsLogits = true;
  /** Token ids: [tokens]. */
  readonly tokens: Int32Array;
  /** Position of each token in its sequence: [tokens]. */
  readonly positions: Int32Array;
  /** The sequence of each token: [tokens]. */
  readonly sequences: BatchSequence[];
  /** 1: the token was generated; 0: it is part of a prompt: [tokens]. */
  readonly generated: Uint8Array;
  /** The rows (indices into tokens) of the outputs: [outputs]. */
  readonly outputRows: Int32Array;
  /** 0: of this output's logits only the best are read, where the backend finds them; 1: maybe all: [outputs]. */
  readonly wholeRows: Uint8Array;
  /** How many of them are 1. */
  wholeCount = 0;

  constructor(limits: PlanLimits) {
    this.limits = limits;
    this.tokens = new Int32Array(limits.maxTokens);
    this.positions = new Int32Array(limits.maxTokens);
    this.sequences = new Array<BatchSequence>(limits.maxTokens);
    this.generated = new Uint8Array(limits.maxTokens);
    this.outputRows = new Int32Array(limits.maxOutputs);
    this.wholeRows = new Uint8Array(limits.maxOutputs);
  }

  clear(): void {
    this.tokenCount = 0;
    this.outputCount = 0;
    this.wholeCount = 0;
    this.wantsLogits = true;
  }

  /** The number of rows of a kind. */
  count(rows: Rows): number {
    if (rows === "tokens") return this.tokenCount;
    return rows === "outputs" || this.wantsLogits ? this.outputCount : 0;
  }

  /** The counts of all kinds, as a new object: not for the decode loop. */
  counts(): RowCounts {
    return {
      tokens: this.tokenCount,
      outputs: this.outputCount,
      logits: this.count("logits"),
    };
  }

  /** Tokens of token t's sequence after this batch. */
  lengthAfter(t: number): number {
    let last = t;
    while (last + 1 < this.tokenCount && this.sequences[last + 1] === this.sequences[t]) last++;
    return this.positions[last]! + 1;
  }

  /** Adds a token. Returns its row among the outputs, or -1 where it is none. */
  add(
    token: number,
    position: number,
    sequence: BatchSequence,
    isOutput: boolean,
    isGenerated: boolean = false,
    isWhole: boolean = true,
  ): number {
    const row = this.tokenCount++;
    this.#check(row, position, sequence);
    this.generated[row] = isGenerated ? 1 : 0;
    this.tokens[row] = token;
    this.positions[row] = position;
    this.sequences[row] = sequence;
    if (!isOutput) return -1;
    this.outputRows[this.outputCount] = row;
    this.wholeRows[this.outputCount] = isWhole ? 1 : 0;
    if (isWhole) this.wholeCount++;
    return this.outputCount++;
  }

  /** Checks that the tokens of a sequence follow one another: one comparison, except for a sequence's first token. */
  #check(row: number, position: number, sequence: BatchSequence): void {
    if (row > 0 && this.sequences[row - 1] === sequence) {
      if (position === this.positions[row - 1]! + 1) return;
      throw new Error(
        `batch: position ${position} after ${this.positions[row - 1]} of the same sequence, expected ${this.positions[row - 1]! + 1}`,
      );
    }
    for (let earlier = 0; earlier < row - 1; earlier++) {
      if (this.sequences[earlier] !== sequence) continue;
      throw new Error(
        `batch: token ${row} continues the sequence of token ${earlier}, but another one is in between`,
      );
    }
  }
}
