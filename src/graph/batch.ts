// One batch: its tokens, their positions and sequences, and the outputs among them.
//
// The engine fills the same object for every run and allocates nothing: the arrays are as long as the plan's largest batch.
// The tokens of a sequence are next to each other, at consecutive positions, so that a scan can run over them; add() checks it.

import { AdapterList } from "./adapter-list.ts";
import type { AdjustedList } from "./adjusted-list.ts";
import { adapterOf, type BatchRows, type Rows } from "./graph.ts";
import type { PlanLimits } from "./plan.ts";

/** Tokens per block of the paged KV cache. */
export const KV_BLOCK_TOKENS = 32;

const kinds: readonly BatchRows[] = ["tokens", "outputs", "logits"];

const adapterIndices = new Map<Rows, number>();

/** The index of a kind of rows where backends store the counts of a batch one after the other. */
export function countOf(rows: Rows): number {
  if (rows === "tokens") return 0;
  if (rows === "outputs") return 1;
  if (rows === "logits") return 2;
  const known = adapterIndices.get(rows);
  if (known !== undefined) return known;
  const own = adapterOf(rows)!;
  const index = kinds.length * (own.adapter + 1) + kinds.indexOf(own.rows);
  adapterIndices.set(rows, index);
  return index;
}

/** The number of such counts. */
export function countWords({ adapters = 0 }: { readonly adapters?: number }): number {
  return kinds.length * (adapters + 1);
}

/** The tokens of a batch in two parts: Batch.shortTokens, and those behind them. */
export type TokenPart = "short" | "long";

/** The number of rows of each kind in a batch, and of the tokens of each part. */
export type RowCounts = Readonly<Record<Rows | TokenPart, number>>;

/** A sequence with more tokens in a batch is long. */
const MOST_SHORT = 8;

/** State of a sequence, as a backend sees it. Sequences are distinguished by identity. */
export interface BatchSequence {
  /** Locations of keys and values: blocks[position / 32] is the cache block, position % 32 the row in it. */
  readonly blocks: Int32Array;
  /** The same for each group of KV states (KvState.group). Default: all groups use `blocks`. */
  readonly groups?: readonly Int32Array[];
  /** Slots of recurrent state. Default: there is none. */
  readonly slots?: SlotPair | undefined;
  /** The scale of each adapter, by its number; 0: it is not used. Default: none is. */
  readonly scales?: Float32Array | undefined;
  /** The first position that each adapter changes. Default: 0. */
  readonly starts?: Int32Array | undefined;
}

/** Recurrent state of a sequence: a batch reads slot `from` and writes slot `to`, which is another one. */
export interface SlotPair {
  /** NO_SLOT: zeros. */
  readonly from: number;
  readonly to: number;
}

export const NO_SLOT = -1;

/**
 * The probable choice of the token after an output. A device may draw this token ahead, before the host has chosen one: its
 * results count only if the host then asks for the same token.
 */
export interface NextDraw {
  /** 0: the best logit is chosen, and nothing else matters. */
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  /** The random number of the draw after `after` others: [0, 1). */
  uniform(after: number): number;
  /** Adjustment of logits before all else; undefined: none. */
  readonly adjustment?: NextAdjustment | undefined;
}

/**
 * Penalties and biases of the next tokens. A logit is first changed by its bias; that of a token that occurs in the window is then
 * divided by `repeat` if it is positive, multiplied by it if not, and lowered by occurrences * frequency + presence.
 */
export interface NextAdjustment {
  readonly repeat: number;
  readonly frequency: number;
  readonly presence: number;
  /** Tokens that the penalties look back; Infinity: all. */
  readonly window: number;
  /** Lists the tokens that are adjusted after `after` more tokens, which the list leaves out, because they are still unknown. */
  list(after: number, target: AdjustedList): void;
}

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
  /** The number of outputs whose flag is 1. */
  wholeCount = 0;
  /** The number of best logits that are read then, at most 255; 0: as many as the backend finds: [outputs]. */
  readonly bestCounts: Uint8Array;
  /** The tokens whose logits the sampler adjusts: these are read beside the best of all others. undefined: none: [outputs]. */
  readonly adjusted: (AdjustedList | undefined)[];
  /** The probable choice of the token after each output; undefined: unknown: [outputs]. */
  readonly draws: (NextDraw | undefined)[];
  /**
   * The number of batches ahead whose tokens of this sequence a device may draw; its cache blocks have room for them: [outputs].
   */
  readonly #follows: Int32Array;
  /** By the number of the adapter: the tokens that use it, and the outputs. */
  readonly adapters: readonly { readonly tokens: AdapterList; readonly outputs: AdapterList }[];

  constructor(limits: PlanLimits) {
    this.limits = limits;
    this.tokens = new Int32Array(limits.maxTokens);
    this.positions = new Int32Array(limits.maxTokens);
    this.sequences = new Array<BatchSequence>(limits.maxTokens);
    this.generated = new Uint8Array(limits.maxTokens);
    this.outputRows = new Int32Array(limits.maxOutputs);
    this.wholeRows = new Uint8Array(limits.maxOutputs);
    this.bestCounts = new Uint8Array(limits.maxOutputs);
    this.adjusted = new Array<AdjustedList | undefined>(limits.maxOutputs);
    this.draws = new Array<NextDraw | undefined>(limits.maxOutputs);
    this.#follows = new Int32Array(limits.maxOutputs);
    this.adapters = Array.from({ length: limits.adapters ?? 0 }, () => ({
      tokens: new AdapterList(limits.maxTokens),
      outputs: new AdapterList(limits.maxOutputs),
    }));
  }

  clear(): void {
    this.tokenCount = 0;
    this.outputCount = 0;
    this.wholeCount = 0;
    this.wantsLogits = true;
    for (const { tokens, outputs } of this.adapters) {
      tokens.count = 0;
      outputs.count = 0;
    }
  }

  /** The number of rows of a kind. */
  count(rows: Rows): number {
    if (rows === "tokens") return this.tokenCount;
    if (rows === "outputs") return this.outputCount;
    if (rows === "logits") return this.wantsLogits ? this.outputCount : 0;
    if (rows.startsWith("logits") && !this.wantsLogits) return 0;
    return this.adapterList(rows)?.count ?? 0;
  }

  /** The rows that use an adapter; undefined: these rows belong to none. */
  adapterList(of: Rows): AdapterList | undefined {
    const own = adapterOf(of);
    const lists = own && this.adapters[own.adapter];
    return own?.rows === "tokens" ? lists?.tokens : lists?.outputs;
  }

  /** Tokens before the first long sequence. Schedulers put generated tokens, one or a few of a sequence, before prompts. */
  get shortTokens(): number {
    let from = 0;
    for (let t = 1; t < this.tokenCount; t++) {
      if (this.sequences[t] !== this.sequences[from]) from = t;
      else if (t - from >= MOST_SHORT) return from;
    }
    return this.tokenCount;
  }

  /** The counts of all kinds, as a new object: not for the decode loop. */
  counts(): RowCounts {
    const short = this.shortTokens;
    const counts: Record<Rows | TokenPart, number> = {
      tokens: this.tokenCount,
      outputs: this.outputCount,
      logits: this.count("logits"),
      short,
      long: this.tokenCount - short,
    };
    for (let i = 0; i < this.adapters.length; i++) {
      for (const rows of kinds) counts[`${rows}@${i}`] = this.count(`${rows}@${i}`);
    }
    return counts;
  }

  /** Writes the counts of all kinds, by countOf(). */
  writeCounts(target: { [index: number]: number }, at: number): void {
    target[at] = this.tokenCount;
    target[at + 1] = this.outputCount;
    target[at + 2] = this.wantsLogits ? this.outputCount : 0;
    for (let i = 0; i < this.adapters.length; i++) {
      const { tokens, outputs } = this.adapters[i]!;
      const to = at + kinds.length * (i + 1);
      target[to] = tokens.count;
      target[to + 1] = outputs.count;
      target[to + 2] = this.wantsLogits ? outputs.count : 0;
    }
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
    for (let i = 0; i < this.adapters.length; i++) {
      const { tokens, outputs } = this.adapters[i]!;
      const isBefore = position < (sequence.starts?.[i] ?? 0);
      const scale = isBefore ? 0 : (sequence.scales?.[i] ?? 0);
      tokens.add(row, scale);
      if (isOutput) outputs.add(this.outputCount, scale);
    }
    if (!isOutput) return -1;
    this.outputRows[this.outputCount] = row;
    this.wholeRows[this.outputCount] = isWhole ? 1 : 0;
    if (isWhole) this.wholeCount++;
    this.bestCounts[this.outputCount] = 0;
    this.adjusted[this.outputCount] = undefined;
    this.draws[this.outputCount] = undefined;
    return this.outputCount++;
  }

  /** Of the logits of output `row`, at most the `count` best will be read, and those of `adjusted` tokens. */
  wantBest(row: number, count: number, adjusted?: AdjustedList): void {
    this.bestCounts[row] = count < 256 ? count : 0;
    this.adjusted[row] = adjusted;
  }

  /** The token after output `row` will be chosen so, and `follows` batches like this one may come after it. */
  expect(row: number, draw: NextDraw, follows: number): void {
    this.draws[row] = draw;
    this.#follows[row] = follows;
  }

  /** The number of batches that may follow with one token of each of the same sequences, drawn as `draws` says. */
  get mostAhead(): number {
    const { tokenCount, outputCount } = this;
    if (outputCount !== tokenCount || this.wholeCount > 0 || !this.wantsLogits) return 0;
    let most = Infinity;
    for (let row = 0; row < outputCount; row++) {
      if (!this.draws[row] || this.#changes(row)) return 0;
      most = Math.min(most, this.#follows[row]!);
    }
    return most;
  }

  /** Whether an adapter begins at a later position of this token's sequence. */
  #changes(row: number): boolean {
    const { starts } = this.sequences[row]!;
    return starts?.some((at) => at > this.positions[row]!) ?? false;
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

/** The expected milliseconds of a batch, all of whose tokens have logits; undefined: not known. */
export type BatchShape = (tokens: number) => number | undefined;
