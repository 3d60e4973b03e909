// The best logits of a batch's outputs on the host, as wgsl/best-logits.ts found them: of each row BEST pairs of a logit and an id.

import type { BestLogits } from "../backend.ts";
import { BEST } from "./wgsl/best-logits.ts";

export class BestRows {
  readonly #logits: Float32Array; // [rows][BEST][logit, id]
  readonly #ids: Int32Array; // the same memory
  /** 1: all logits of the row were read as well. */
  readonly #wholeRows: Uint8Array;
  #areThere = false;

  /** @param rows of the largest batch. */
  constructor(rows: number) {
    this.#logits = new Float32Array(rows * BEST * 2);
    this.#ids = new Int32Array(this.#logits.buffer);
    this.#wholeRows = new Uint8Array(rows);
  }

  /** A batch begins; `areThere`: its best logits are read, and all logits only of some rows. */
  begin(areThere: boolean): void {
    this.#areThere = areThere;
  }

  /** Whether the batch has them. */
  get areThere(): boolean {
    return this.#areThere;
  }

  take(copied: Float32Array, wholeRows: Uint8Array): void {
    // As integers: an id that is taken for a float may be a NaN, whose bits a copy of floats may change.
    this.#ids.set(new Int32Array(copied.buffer, copied.byteOffset, copied.length));
    this.#wholeRows.set(wholeRows);
  }

  /** Whether all logits of the row were read. */
  hasRow(row: number): boolean {
    return !this.#areThere || this.#wholeRows[row] === 1;
  }

  /** See Backend.readBest(). */
  read(row: number, { ids, logits }: BestLogits): boolean {
    if (!this.#areThere) return false;
    const first = row * BEST * 2;
    for (let i = 0; i < ids.length; i++) {
      logits[i] = this.#logits[first + 2 * i]!;
      ids[i] = this.#ids[first + 2 * i + 1]!;
    }
    return true;
  }
}
