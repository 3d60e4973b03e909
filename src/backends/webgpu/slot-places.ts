// Maps the engine's slots of recurrent state to the GPU's. A batch reads the state of a sequence in one slot and writes it to another, which the engine
// names when it asks for the batch. A batch submitted ahead (lookahead.ts) is submitted before that, so it writes to a spare place of the buffer; once the engine
// asks for it, that place becomes the named slot, and the slot's old place becomes spare. Nothing is copied, and the state of a dropped batch is never read.

import { type Batch, NO_SLOT, type SlotPair } from "../../graph/batch.ts";

/** Places besides those of the slots: as many batches of one sequence can be submitted ahead. */
export const SPARE_PLACES = 2;

export class SlotPlaces {
  /** By slot. */
  readonly #places: Int32Array;
  /** Places that belong to no slot and that no batch submitted ahead writes. */
  readonly #spare: number[];
  /** By row of the batches submitted ahead: the places that they write, oldest first. */
  #flying: number[][] = [];

  /** @param slots of the engine; 0: there is no recurrent state. */
  constructor(slots: number) {
    this.#places = Int32Array.from({ length: slots }, (_, slot) => slot);
    this.#spare = slots > 0 ? Array.from({ length: SPARE_PLACES }, (_, i) => slots + i) : [];
  }

  /** NO_SLOT for NO_SLOT. */
  placeOf(slot: number): number {
    return slot === NO_SLOT ? NO_SLOT : this.#places[slot]!;
  }

  /** The most batches like this one, with one token of each sequence, that can be submitted ahead behind it. */
  capacityBehind(batch: Batch): number {
    if (this.#places.length === 0) return Infinity;
    for (let row = 0; row < batch.tokenCount; row++) {
      if ((batch.sequences[row]!.slots?.to ?? NO_SLOT) === NO_SLOT) return 0;
    }
    return Math.floor(SPARE_PLACES / batch.tokenCount);
  }

  /** Another batch is submitted ahead: the places that it reads and writes for the sequence in this row, whose state after the last batch that was asked for is in `slot`. */
  fly(row: number, slot: number): SlotPair {
    this.#flying[row] ??= [];
    const flying = this.#flying[row];
    const from = flying.at(-1) ?? this.placeOf(slot);
    const to = this.#spare.pop();
    if (to === undefined) throw new Error("webgpu backend: no spare place for recurrent state");
    flying.push(to);
    return { from, to };
  }

  /** The oldest batch submitted ahead is asked for: the state that it wrote for the sequence in this row is the state in `slot`. */
  land(row: number, slot: number): void {
    const place = this.#flying[row]?.shift();
    if (place === undefined) return;
    this.#spare.push(this.#places[slot]!);
    this.#places[slot] = place;
  }

  /** Drops the batches submitted ahead, which were not asked for. */
  drop(): void {
    this.#spare.push(...this.#flying.flat());
    this.#flying = [];
  }
}
