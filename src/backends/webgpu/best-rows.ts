// The best logits of a batch's outputs on the host, as wgsl/best-logits.ts found them: of each row BEST pairs of a logit and an id, and
// the token that was drawn from them; behind all rows, pairs of adjusted tokens.

import type { Batch } from "../../graph/batch.ts";
import type { AdjustedLogits, BestLogits } from "../backend.ts";
import { BEST, BEST_WORDS, bestWords, mostPairs } from "./wgsl/best-logits.ts";

export class BestRows {
  readonly #logits: Float32Array; // [rows][BEST][logit, id], then four words; behind all rows [pairs][logit, id]
  readonly #ids: Int32Array; // the same memory
  /** 1: all logits of the row were read as well. */
  readonly #wholeRows: Uint8Array;
  /** The number of logits of the row that were looked for. */
  readonly #counts: Uint8Array;
  #areThere = false;
  /** The start of the pairs. */
  #behind = 0;

  /** @param rows of the largest batch. */
  constructor(rows: number) {
    this.#logits = new Float32Array(bestWords(rows, mostPairs(rows)));
    this.#ids = new Int32Array(this.#logits.buffer);
    this.#wholeRows = new Uint8Array(rows);
    this.#counts = new Uint8Array(rows);
  }

  /** A batch begins; `areThere`: its best logits are read, and all logits only of some rows. */
  begin(areThere: boolean): void {
    this.#areThere = areThere;
  }

  /** Whether the batch has them. */
  get areThere(): boolean {
    return this.#areThere;
  }

  take(copied: Float32Array, { wholeRows, bestCounts, outputCount }: Batch): void {
    // As integers: an id that is taken for a float may be a NaN, whose bits a copy of floats may change.
    this.#ids.set(new Int32Array(copied.buffer, copied.byteOffset, copied.length));
    this.#behind = bestWords(outputCount, 0);
    this.#wholeRows.set(wholeRows);
    for (let row = 0; row < outputCount; row++) this.#counts[row] = bestCounts[row]! || BEST;
  }

  /** Whether all logits of the row were read. */
  hasRow(row: number): boolean {
    return !this.#areThere || this.#wholeRows[row] === 1;
  }

  /** See Backend.readBest(). */
  read(row: number, { ids, logits, adjusted }: BestLogits): boolean {
    if (!this.#areThere || ids.length > this.#counts[row]!) return false;
    const first = row * BEST_WORDS;
    for (let i = 0; i < ids.length; i++) {
      logits[i] = this.#logits[first + 2 * i]!;
      ids[i] = this.#ids[first + 2 * i + 1]!;
    }
    if (adjusted) this.#readAdjusted(first + 2 * BEST + 2, adjusted);
    return true;
  }

  /** `at`: the word with the index of the first pair, then the word with their numbers. */
  #readAdjusted(at: number, target: AdjustedLogits): void {
    const [known, unknown] = [this.#ids[at + 1]! & 0xffff, this.#ids[at + 1]! >>> 16];
    let from = this.#behind + 2 * this.#ids[at]!;
    target.count = 0;
    for (let i = 0; i < known + unknown; i++, from += 2) {
      const id = this.#ids[from + 1]!;
      // A token that the GPU drew may be among them already.
      if (i >= known && target.ids.subarray(0, target.count).includes(id)) continue;
      target.ids[target.count] = id;
      target.logits[target.count++] = this.#logits[from]!;
    }
  }

  /** The token that the GPU drew after this row, in a batch that says how. */
  drawn(row: number): number {
    return this.#ids[row * BEST_WORDS + 2 * BEST]!;
  }
}
