// The batch area: one buffer that is written once per batch, with counts, tokens, positions, output rows, sines and cosines of
// the positions, and the cache blocks of each sequence. Also its mirror in host memory.

import type { AdapterList } from "../../graph/adapter-list.ts";
import { ADJUSTED_ROOM, AdjustedList } from "../../graph/adjusted-list.ts";
import {
  type Batch,
  type BatchSequence,
  countWords,
  KV_BLOCK_TOKENS,
  NO_SLOT,
  tableOf,
} from "../../graph/batch.ts";
import {
  type Graph,
  isBidirectional,
  kvGroups,
  type Rope,
  recurrentStates,
  type Weight,
} from "../../graph/graph.ts";
import type { PlanLimits } from "../../graph/plan.ts";
import { isWholeModel } from "./results.ts";
import { SlotPlaces } from "./slot-places.ts";

/** WGSL has no infinities. */
const MOST_FLOAT = 3e38;

/** The cosines and sines of all ropes with the same frequencies and factors: [token][pair]. */
export interface AngleArea {
  readonly rope: Rope;
  readonly factors: Weight | undefined;
  readonly at: number;
}

/** Addresses in 4-byte words; the first ones, at least 4, are for counts (countOf). */
export interface BatchLayout {
  readonly tokens: number;
  readonly positions: number;
  /** The number of each token's sequence, which has a table of cache blocks. */
  readonly sequences: number;
  /** One word: Batch.shortTokens. */
  readonly short: number;
  readonly outputRows: number;
  /** By the number of the adapter: the tokens that use it, and the outputs. */
  readonly adapters: readonly { readonly tokens: AdapterWords; readonly outputs: AdapterWords }[];
  /** Tokens of each token's sequence after the batch; undefined: no kernel reads them. */
  readonly lengths: number | undefined;
  readonly angles: readonly AngleArea[];
  /** [sequence][4]: its first row, and the slots of its recurrent state to read and to write; 0: there is none. */
  readonly segments: number;
  /** By group of KV states: [sequence][tableLength]; last, because most batches have few sequences. */
  readonly groups: readonly number[];
  /** By index in Graph.states: the tables of its group; 0 for a state without one. */
  readonly tables: readonly number[];
  readonly tableLength: number;
  /**
   * [output][DRAW_WORDS]: the number of its best logits that are read, and the parameters for drawing the next token
   * (wgsl/best-logits.ts).
   */
  readonly draws: number;
  /** [output][DRAWN_WORDS]: tokens that the GPU drew submitted ahead, by position modulo that. */
  readonly drawn: number;
  /** [adjusted token of any output][ADJUSTED_WORDS], one output after the other. */
  readonly adjusted: number;
  readonly words: number;
}

/** An AdapterList (graph/adapter-list.ts). */
export interface AdapterWords {
  readonly rows: number;
  readonly places: number;
  /** Floats. */
  readonly scales: number;
}

export function layOutBatch(graph: Graph, limits: PlanLimits, kvBlocks: number): BatchLayout {
  const { maxTokens, maxOutputs } = limits;
  let next = Math.max(4, countWords(graph));
  const take = (words: number): number => {
    const at = next;
    next += words;
    return at;
  };
  const tokens = take(maxTokens);
  const sequences = take(maxTokens);
  const short = take(1);
  const list = (most: number) => ({ rows: take(most), places: take(most), scales: take(most) });
  const adapters = Array.from({ length: graph.adapters ?? 0 }, () => ({
    tokens: list(maxTokens),
    outputs: list(maxOutputs),
  }));
  const outputRows = take(maxOutputs);
  const lengths = isBidirectional(graph) ? take(maxTokens) : undefined;
  const drawn = take(maxOutputs * DRAWN_WORDS);
  // From here on, words that change from a batch to one that follows it submitted ahead; before it the tokens, which the GPU
  // draws.
  const draws = take(maxOutputs * DRAW_WORDS);
  const positions = take(maxTokens);
  const angles: AngleArea[] = [];
  for (const node of graph.nodes) {
    if (node.op !== "rope") continue;
    const { rope, factors } = node;
    if (angles.some((area) => area.rope === rope && area.factors === factors)) continue;
    angles.push({ rope, factors, at: take(maxTokens * rope.dims) });
  }
  const segments = recurrentStates(graph).length > 0 ? take(maxTokens * SEGMENT_WORDS) : 0;
  const groups = kvGroups(graph).map(() => take(maxTokens * kvBlocks));
  const tables = graph.states.map((state) => (state.kind === "kv" ? groups[state.group]! : 0));
  const adjusted = take(isWholeModel(graph) ? maxOutputs * ADJUSTED_ROOM * ADJUSTED_WORDS : 0);
  const rows = { tokens, positions, sequences, short, outputRows, adapters, lengths };
  const layout = { ...rows, angles, segments, groups, tables, draws, drawn, adjusted };
  return { ...layout, tableLength: kvBlocks, words: next };
}

/** Words of a sequence in BatchLayout.segments. */
export const SEGMENT_WORDS = 4;

/**
 * Words of an output in BatchLayout.draws: the number of logits, top-k (0: no token is drawn), temperature, top-p, ln(min-p), a random
 * number; of its adjusted tokens the index of the first, the number that is listed, and the number that the GPU drew last; and the penalties
 * repeat, frequency and presence (NextAdjustment).
 */
export const DRAW_WORDS = 12;

/** Words of an adjusted token: id, occurrences, and its bias. */
export const ADJUSTED_WORDS = 3;

/** Tokens of a sequence that are kept on the GPU; more than can be submitted ahead. */
export const DRAWN_WORDS = 8;

/** As many of the best logits as there can be. */
const ALL_BEST = 0xffffffff;

/** [from, to) in words. */
export type WordRange = readonly [from: number, to: number];

export class BatchArea {
  readonly #layout: BatchLayout;
  readonly #words: Uint32Array<ArrayBuffer>;
  readonly #floats: Float32Array;
  /** Factors of ropes, by weight name; known once they are uploaded. */
  readonly #factors: ReadonlyMap<string, Float32Array>;
  /** Cosines and sines that were computed before: of each area, by position. */
  readonly #known = new Map<AngleArea, Float32Array[]>();
  /** Adjusted tokens of all outputs, with those that the GPU draws. */
  #adjustedCount = 0;
  /** Of each output only the best logit is read. */
  #areOnes = false;
  readonly #list = new AdjustedList();

  readonly #places: SlotPlaces;

  constructor(
    layout: BatchLayout,
    factors: ReadonlyMap<string, Float32Array>,
    places: SlotPlaces = new SlotPlaces(0),
  ) {
    this.#layout = layout;
    this.#places = places;
    this.#words = new Uint32Array(layout.words);
    this.#floats = new Float32Array(this.#words.buffer);
    this.#factors = factors;
  }

  /** Fills the mirror; returns the ranges of it that the GPU needs. `draws`: the GPU draws the next tokens, as the batch says. */
  fill(batch: Batch, draws: boolean = false): readonly WordRange[] {
    const { tokens, positions, sequences, outputRows, lengths, segments } = this.#layout;
    const { groups, tableLength } = this.#layout;
    const words = this.#words;
    batch.writeCounts(words, 0);
    words[this.#layout.short] = batch.shortTokens;
    let current: BatchSequence | undefined;
    let sequence = -1;
    let held = 0;
    let filled = 0; // of the sequence's blocks
    let length = 0;
    for (let t = 0; t < batch.tokenCount; t++) {
      if (batch.sequences[t] !== current) {
        current = batch.sequences[t]!;
        sequence++;
        filled = 0;
        if (segments > 0) this.#fillSegment(sequence, t, current);
        if (lengths !== undefined) length = batch.lengthAfter(t);
      }
      if (lengths !== undefined) words[lengths + t] = length;
      const position = batch.positions[t]!;
      words[tokens + t] = batch.tokens[t]!;
      words[positions + t] = position;
      words[sequences + t] = sequence;
      held = Math.floor(position / KV_BLOCK_TOKENS) + 1;
      for (let group = 0; group < groups.length; group++) {
        const at = groups[group]! + sequence * tableLength;
        const blocks = tableOf(current!, group);
        for (let b = filled; b < held; b++) words[at + b] = blocks[b]!;
      }
      filled = Math.max(filled, held);
    }
    const used = sequence * tableLength + held;
    this.#adjustedCount = 0;
    this.#areOnes = true;
    for (let o = 0; o < batch.outputCount; o++) {
      if (batch.bestCounts[o] !== 1) this.#areOnes = false;
      words[outputRows + o] = batch.outputRows[o]!;
      words[this.#layout.draws + o * DRAW_WORDS] = batch.bestCounts[o]! || ALL_BEST;
      words[this.#layout.draws + o * DRAW_WORDS + 1] = 0;
      this.#fillAdjusted(o, batch.adjusted[o], 0);
    }
    if (draws) this.#fillDraws(batch, 0);
    this.#layout.adapters.forEach((to, i) => {
      const { tokens: ofTokens, outputs: ofOutputs } = batch.adapters[i]!;
      this.#fillList(to.tokens, ofTokens, batch.tokenCount);
      this.#fillList(to.outputs, ofOutputs, batch.outputCount);
    });
    for (const area of this.#layout.angles) this.#fillAngles(area, batch, 0);
    return joined([
      [0, positions + batch.tokenCount],
      ...this.#layout.angles.map(
        ({ at, rope }) => [at, at + batch.tokenCount * rope.dims] as const,
      ),
      ...(segments > 0 ? [[segments, segments + (sequence + 1) * SEGMENT_WORDS] as const] : []),
      ...groups.map((at) => [at, at + used] as const),
      ...this.#adjustedRanges(),
    ]);
  }

  /**
   * The same for the batch that comes `ahead` batches after this one, with the next tokens of the same sequences, which the GPU
   * has drawn itself. Words that stay the same are there already.
   */
  fillAhead(batch: Batch, ahead: number): readonly WordRange[] {
    const { draws, positions, groups, tableLength, angles, segments } = this.#layout;
    const words = this.#words;
    const { tokenCount } = batch;
    let held = 0;
    let isNew = false;
    for (let t = 0; t < tokenCount; t++) {
      const position = batch.positions[t]! + ahead;
      words[positions + t] = position;
      if (segments > 0) this.#fillSegmentAhead(t, batch.sequences[t]!);
      held = Math.floor(position / KV_BLOCK_TOKENS) + 1;
      if (position % KV_BLOCK_TOKENS !== 0) continue;
      isNew = true;
      for (let group = 0; group < groups.length; group++) {
        const table = tableOf(batch.sequences[t]!, group);
        words[groups[group]! + t * tableLength + held - 1] = table[held - 1]!;
      }
    }
    for (const area of angles) this.#fillAngles(area, batch, ahead);
    const isDrawn = hasDraws(batch);
    if (isDrawn) {
      this.#adjustedCount = 0;
      this.#fillDraws(batch, ahead);
    }
    const used = (tokenCount - 1) * tableLength + held;
    return joined([
      [isDrawn ? draws : positions, positions + tokenCount],
      ...angles.map(({ at, rope }): WordRange => [at, at + tokenCount * rope.dims]),
      ...(segments > 0
        ? [[segments, segments + tokenCount * SEGMENT_WORDS] satisfies WordRange]
        : []),
      ...(isNew ? groups.map((at): WordRange => [at, at + used]) : []),
      ...this.#adjustedRanges(),
    ]);
  }

  /** Of each output of the batch that was filled in last only the best logit is read, and none has adjusted tokens. */
  get isOne(): boolean {
    return this.#areOnes && this.#adjustedCount === 0;
  }

  /** The adjusted tokens of all outputs of the batch that was filled in last, with those that the GPU draws. */
  get adjustedCount(): number {
    return this.#adjustedCount;
  }

  #adjustedRanges(): WordRange[] {
    const { adjusted } = this.#layout;
    return this.#adjustedCount === 0
      ? []
      : [[adjusted, adjusted + this.#adjustedCount * ADJUSTED_WORDS]];
  }

  /**
   * The adjusted tokens of an output, behind those of the one before. `unknown`: room for this many tokens that the GPU
   * draws.
   */
  #fillAdjusted(row: number, list: AdjustedList | undefined, unknown: number): void {
    const words = this.#words;
    const at = this.#layout.draws + row * DRAW_WORDS;
    const count = list?.count ?? 0;
    words[at + 6] = this.#adjustedCount;
    words[at + 7] = count;
    words[at + 8] = unknown;
    let to = this.#layout.adjusted + this.#adjustedCount * ADJUSTED_WORDS;
    for (let i = 0; i < count; i++, to += ADJUSTED_WORDS) {
      words[to] = list!.ids[i]!;
      words[to + 1] = list!.occurrences[i]!;
      this.#floats[to + 2] = Math.max(list!.biases[i]!, -MOST_FLOAT);
    }
    this.#adjustedCount += count + unknown;
  }

  /** The parameters for drawing the tokens after the batch that comes `ahead` batches after this one. */
  #fillDraws(batch: Batch, ahead: number): void {
    const { draws } = this.#layout;
    const floats = this.#floats;
    for (let row = 0; row < batch.outputCount; row++) {
      const { temperature, topK, topP, minP, uniform, adjustment } = batch.draws[row]!;
      const at = draws + row * DRAW_WORDS;
      this.#words[at + 1] = temperature > 0 ? topK : 1;
      floats[at + 2] = temperature;
      floats[at + 3] = topP;
      floats[at + 4] = minP > 0 ? Math.log(minP) : -MOST_FLOAT;
      floats[at + 5] = temperature > 0 ? uniform(ahead) : 0;
      floats[at + 9] = adjustment?.repeat ?? 1;
      floats[at + 10] = adjustment?.frequency ?? 0;
      floats[at + 11] = adjustment?.presence ?? 0;
      if (ahead === 0) continue; // the batch itself has its adjusted tokens
      adjustment?.list(ahead, this.#list);
      this.#fillAdjusted(row, adjustment && this.#list, Math.min(ahead, adjustment?.window ?? 0));
    }
  }

  /** Whether the cache blocks of the batch, one token of each sequence, are those that were filled in last. */
  hasBlocks(batch: Batch): boolean {
    const { groups, tableLength } = this.#layout;
    for (let t = 0; t < batch.tokenCount; t++) {
      const held = Math.floor(batch.positions[t]! / KV_BLOCK_TOKENS) + 1;
      for (let group = 0; group < groups.length; group++) {
        const at = groups[group]! + t * tableLength;
        const table = tableOf(batch.sequences[t]!, group);
        for (let b = 0; b < held; b++) if (this.#words[at + b] !== table[b]!) return false;
      }
    }
    return true;
  }

  #fillList(to: AdapterWords, { rows, places, scales, count }: AdapterList, all: number): void {
    for (let i = 0; i < count; i++) this.#words[to.rows + i] = rows[i]!;
    for (let row = 0; row < all; row++) {
      this.#words[to.places + row] = places[row]!; // -1: the largest number
      this.#floats[to.scales + row] = scales[row]!;
    }
  }

  #fillSegment(sequence: number, firstRow: number, { slots }: BatchSequence): void {
    const at = this.#layout.segments + sequence * SEGMENT_WORDS;
    this.#words[at] = firstRow;
    this.#words[at + 1] = this.#places.placeOf(slots?.from ?? NO_SLOT);
    this.#words[at + 2] = this.#places.placeOf(slots?.to ?? NO_SLOT);
  }

  /** The same for a batch submitted ahead, which has a token of each sequence. */
  #fillSegmentAhead(sequence: number, { slots }: BatchSequence): void {
    const at = this.#layout.segments + sequence * SEGMENT_WORDS;
    const { from, to } = this.#places.fly(sequence, slots!.to);
    this.#words[at + 1] = from;
    this.#words[at + 2] = to;
  }

  /** The mirror. */
  get words(): Uint32Array<ArrayBuffer> {
    return this.#words;
  }

  #fillAngles(area: AngleArea, batch: Batch, ahead: number): void {
    const { rope, at } = area;
    const known = this.#known.get(area) ?? [];
    this.#known.set(area, known);
    for (let t = 0; t < batch.tokenCount; t++) {
      const position = batch.positions[t]! + ahead;
      const to = at + t * rope.dims;
      if (position >= KEPT_POSITIONS) this.#writeAngles(area, position, this.#floats, to);
      else {
        known[position] ??= this.#writeAngles(area, position, new Float32Array(rope.dims), 0);
        this.#floats.set(known[position], to);
      }
    }
  }

  /** Rounds to float32 at every step, as the reference: angles of thousands of radians have few digits to lose. */
  #writeAngles(
    { rope, factors }: AngleArea,
    position: number,
    target: Float32Array,
    at: number,
  ): Float32Array {
    const f32 = Math.fround;
    const divisors = factors && this.#factors.get(factors.name)!;
    for (let pair = 0; pair < rope.dims / 2; pair++) {
      const turned = f32(position * rope.frequencies[pair]!);
      const angle = divisors ? f32(turned / divisors[pair]!) : turned;
      target[at + 2 * pair] = f32(Math.cos(angle)) * rope.magnitude;
      target[at + 2 * pair + 1] = f32(Math.sin(angle)) * rope.magnitude;
    }
    return target;
  }
}

/** Whether there is more to choosing the next tokens than taking the best. */
function hasDraws({ draws, outputCount }: Batch): boolean {
  for (let row = 0; row < outputCount; row++) {
    const { temperature, adjustment } = draws[row]!;
    if (temperature > 0 || adjustment) return true;
  }
  return false;
}

/** Words between two ranges that are written again with them: each range is a copy of its own for the GPU, and waits for the one before. */
const MOST_BETWEEN = 4096;

/** Ranges in order, as few as possible. The words between them are the GPU's already. */
function joined(ranges: readonly WordRange[]): WordRange[] {
  const all: [from: number, to: number][] = [];
  for (const [from, to] of ranges) {
    const last = all.at(-1);
    if (last && from - last[1] <= MOST_BETWEEN) last[1] = to;
    else all.push([from, to]);
  }
  return all;
}

/** Angles of the first positions are kept, since the host would compute them for 2 ms of a batch of 512: 512 bytes each with heads of 128. */
const KEPT_POSITIONS = 8192;
