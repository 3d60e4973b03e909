// The best logits of a token, without a copy of all of them: a kernel finds the maximum of each block of 64 (block_max), and only
// blocks with the largest maxima are looked at. On the leader, after the batch; of a vocabulary of 32,000 the best one takes some
// microseconds, where a copy and a search in TypeScript take 80 (Neoverse-N1).
//
// The k best of all are in the k blocks with the largest maxima; of equal maxima, those of the earlier blocks.

import { bestOfAll, selectBest, selectBestOfAll } from "../../base/select-best.ts";
import type { Graph, Value } from "../../graph/graph.ts";
import { MAX_BLOCK } from "../../kernels/ops/elementwise/block-max.ts";
import type { BestLogits } from "../backend.ts";
import type { Kernels } from "./executor.ts";
import type { Arena, ArenaViews } from "./memory/arena.ts";

/** More are not looked for: with large k, all blocks are looked at. */
export const MOST_BEST = 128;

/** Memory of the search. */
export interface BestArea {
  /** The address of the logits: [outputs, vocab]. */
  readonly logits: number;
  readonly vocab: number;
  /** The address of the maxima of a row's blocks; the last block may be short. */
  readonly maxima: number;
}

/** The logits that can be searched; undefined: the model has none, or too few. */
export function searchedLogits({ outputs }: Graph): Value | undefined {
  const { logits } = outputs;
  return logits && logits.cols >= MAX_BLOCK ? logits : undefined;
}

export function placeBest(vocab: number, logits: number, arena: Arena): BestArea {
  const blocks = Math.ceil(vocab / MAX_BLOCK);
  return { logits, vocab, maxima: arena.allocate(blocks * 4, "work", "maxima of logits") };
}

export class BestSearch {
  readonly #area: BestArea;
  readonly #blockMax: Kernels[string];
  readonly #f32: Float32Array;
  readonly #maxima: Float32Array; // [blocks]
  /** The logits of each row: made when first needed. */
  readonly #rows: Float32Array[] = [];
  readonly #blocks = new Int32Array(MOST_BEST);
  readonly #candidates: Int32Array;

  constructor(area: BestArea, kernels: Kernels, { f32 }: ArenaViews) {
    const blocks = Math.ceil(area.vocab / MAX_BLOCK);
    this.#area = area;
    this.#blockMax = kernels.block_max!;
    this.#f32 = f32;
    this.#maxima = f32.subarray(area.maxima / 4, area.maxima / 4 + blocks);
    this.#candidates = new Int32Array(Math.min(MOST_BEST, blocks) * MAX_BLOCK);
  }

  /** See Backend.readBest(). false: some logit is not finite. */
  read(row: number, { ids, logits }: BestLogits): boolean {
    const all = this.#row(row);
    this.#findMaxima(row, all);
    const isFound = ids.length === 1 ? this.#one(all, ids) : this.#several(all, ids);
    if (isFound) for (let i = 0; i < ids.length; i++) logits[i] = all[ids[i]!]!;
    return isFound;
  }

  #row(row: number): Float32Array {
    const { logits, vocab } = this.#area;
    const first = logits / 4 + row * vocab;
    this.#rows[row] ??= this.#f32.subarray(first, first + vocab);
    return this.#rows[row];
  }

  #findMaxima(row: number, all: Float32Array): void {
    const { logits, vocab, maxima } = this.#area;
    const whole = Math.floor(vocab / MAX_BLOCK);
    this.#blockMax(logits + row * vocab * 4, maxima, whole);
    if (whole * MAX_BLOCK === vocab) return;
    let max = Number.NEGATIVE_INFINITY;
    for (let id = whole * MAX_BLOCK; id < vocab; id++) max = Math.max(max, all[id]!); // NaN if one is
    this.#maxima[whole] = Number.isFinite(max) ? max : Number.NaN;
  }

  #one(all: Float32Array, ids: Int32Array): boolean {
    const block = bestOfAll(this.#maxima);
    const max = this.#maxima[block]!;
    if (Number.isNaN(max)) return false;
    let id = block * MAX_BLOCK;
    while (all[id] !== max) id++;
    ids[0] = id;
    return true;
  }

  #several(all: Float32Array, ids: Int32Array): boolean {
    const found = selectBestOfAll(this.#maxima, ids.length, this.#blocks);
    if (Number.isNaN(this.#maxima[this.#blocks[0]!])) return false;
    let count = 0;
    for (let i = 0; i < found; i++) {
      const first = this.#blocks[i]! * MAX_BLOCK;
      const end = Math.min(first + MAX_BLOCK, all.length);
      for (let id = first; id < end; id++) this.#candidates[count++] = id;
    }
    return selectBest(all, this.#candidates, count, ids.length, ids) === ids.length;
  }
}
