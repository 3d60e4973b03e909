// Batches submitted ahead: those that were submitted before the host asked for them. A generated token takes the host about as long as the
// GPU (encoding its commands, submitting them, sampling, text), and one would wait for the other. So the GPU draws the next tokens
// itself (wgsl/draw.ts) and continues with them:
//
//   run(t1)   submits t1, and behind it t2' and t3', which the GPU draws from the logits before them
//   ...       reads the results of t1; the host draws t2
//   run(t2)   t2 = t2': it is being computed already. Submits t4', reads the results of t2
//   run(x)    another token than t3', or other sequences: all batches submitted ahead are dropped, and x is submitted
//
// A batch counts only if the host asks for exactly it: the same sequences in the same order, at the same positions, with the same
// tokens and cache blocks. So the GPU's draws never change a text. A dropped batch has written behind the last token of a sequence, in blocks that
// belonged to it when the batch was submitted; later writes to them are submitted later. Its recurrent state is in spare slots (slot-places.ts).

import { type Batch, type BatchSequence, type NextDraw, NO_SLOT } from "../../graph/batch.ts";
import { MOST_SUBMITTED } from "./buffers.ts";
import { SlotPlaces } from "./slot-places.ts";

/** Batches submitted ahead by default: one is computed while the host makes the next. Each more delays a new request by a batch. */
const USUAL_AHEAD = 2;

/** The most that can be. */
const MOST_AHEAD: number = MOST_SUBMITTED - 1;

export class Lookahead {
  /** The number of batches that were submitted ahead so far, and of those that were never asked for. */
  submitted = 0;
  dropped = 0;
  readonly #most: number;
  /** Batches that are submitted ahead and were not asked for yet. */
  #ahead = 0;
  /** The most batches submitted ahead: fewer after some were dropped. */
  #depth = 0;
  /** The buffers of results, used alternately: that of the next batch, and of the last one that was asked for. */
  #next = 0;
  #current = 0;
  /** Of the last batch that was asked for: its tokens' sequences and positions, the logits read of each, how tokens are drawn after it, and which. */
  #count = 0;
  readonly #sequences: (BatchSequence | undefined)[];
  readonly #positions: Int32Array;
  readonly #bestCounts: Uint8Array;
  readonly #draws: (NextDraw | undefined)[];
  readonly #drawn: Int32Array;
  /** By buffer: room for pairs of adjusted tokens. */
  readonly #pairs: Int32Array = new Int32Array(MOST_SUBMITTED);
  /** The slots of recurrent state that it wrote. */
  readonly #slots: Int32Array;
  readonly #places: SlotPlaces;

  /** @param rows of the largest batch; `most`: batches submitted ahead, 0: none. */
  constructor(rows: number, most: number = USUAL_AHEAD, places: SlotPlaces = new SlotPlaces(0)) {
    this.#most = Math.min(most, MOST_AHEAD);
    this.#places = places;
    this.#slots = new Int32Array(rows);
    this.#sequences = new Array<BatchSequence | undefined>(rows);
    this.#positions = new Int32Array(rows);
    this.#bestCounts = new Uint8Array(rows);
    this.#draws = new Array<NextDraw | undefined>(rows);
    this.#drawn = new Int32Array(rows);
  }

  get most(): number {
    return this.#most;
  }

  /** Batches that are submitted ahead and were not asked for yet. */
  get ahead(): number {
    return this.#ahead;
  }

  /** The index of the buffer of the last batch that was asked for, and that of the next one that is submitted. */
  get current(): number {
    return this.#current;
  }

  get next(): number {
    return this.#next;
  }

  /** Room for pairs of adjusted tokens in the current buffer, and in that of the batch that was submitted last. */
  get pairs(): number {
    return this.#pairs[this.#current]!;
  }

  get lastPairs(): number {
    return this.#pairs[(this.#next + MOST_SUBMITTED - 1) % MOST_SUBMITTED]!;
  }

  /** Whether this batch is submitted ahead already, as far as its tokens say; otherwise nothing is submitted ahead any more. */
  take(batch: Batch, hasBlocks: () => boolean): boolean {
    if (this.#ahead === 0) return false;
    if (!this.#follows(batch) || !hasBlocks()) {
      this.drop();
      return false;
    }
    this.#current = (this.#next - this.#ahead + MOST_SUBMITTED) % MOST_SUBMITTED;
    this.#ahead--;
    for (let row = 0; row < this.#count; row++) {
      this.#positions[row]!++;
      this.#slots[row] = slotAfter(batch.sequences[row]!);
      this.#places.land(row, this.#slots[row]!);
    }
    return true;
  }

  /** Drops the batches submitted ahead, which were not asked for. */
  drop(): void {
    if (this.#ahead === 0) return;
    this.dropped += this.#ahead;
    this.#ahead = 0;
    this.#places.drop();
    this.#depth = -1; // the next batch has none behind it: drafted tokens often alternate with others
  }

  /** The most batches submitted ahead behind this one, which is asked for now. */
  capacityFor(batch: Batch): number {
    this.#depth = Math.min(this.#depth + 1, this.#most);
    // Batches of many users take longer than the host, and they are dropped when a user comes or leaves.
    const most = batch.tokenCount > 1 ? Math.min(1, this.#depth) : this.#depth;
    return Math.min(most, batch.mostAhead, this.#places.capacityBehind(batch));
  }

  /** This batch was asked for, and others may follow it; `pairs` as above. Returns the index of its buffer. */
  begin(batch: Batch, pairs: number = 0): number {
    this.#count = batch.tokenCount;
    for (let row = 0; row < this.#count; row++) {
      this.#sequences[row] = batch.sequences[row]!;
      this.#positions[row] = batch.positions[row]!;
      this.#bestCounts[row] = batch.bestCounts[row]!;
      this.#draws[row] = batch.draws[row];
      this.#slots[row] = slotAfter(batch.sequences[row]!);
    }
    this.#current = this.#takeBuffer(pairs);
    return this.#current;
  }

  /** Another batch is submitted ahead. Returns the index of its buffer. */
  add(pairs: number = 0): number {
    this.#ahead++;
    this.submitted++;
    return this.#takeBuffer(pairs);
  }

  /** The tokens that the GPU drew after the last batch that was asked for. */
  drew(tokenOf: (row: number) => number): void {
    for (let row = 0; row < this.#count; row++) this.#drawn[row] = tokenOf(row);
  }

  #takeBuffer(pairs: number): number {
    const index = this.#next;
    this.#pairs[index] = pairs;
    this.#next = (index + 1) % MOST_SUBMITTED;
    return index;
  }

  #follows(batch: Batch): boolean {
    if (batch.tokenCount !== this.#count || batch.outputCount !== this.#count) return false;
    if (batch.wholeCount > 0 || !batch.wantsLogits) return false;
    for (let row = 0; row < this.#count; row++) {
      if (batch.sequences[row] !== this.#sequences[row]) return false;
      if (batch.positions[row] !== this.#positions[row]! + 1) return false;
      if (batch.tokens[row] !== this.#drawn[row]) return false;
      if (batch.bestCounts[row] !== this.#bestCounts[row]) return false;
      // Of another sampler, which may adjust other tokens.
      if (batch.draws[row] !== this.#draws[row]) return false;
      const { from = NO_SLOT, to = NO_SLOT } = batch.sequences[row]!.slots ?? {};
      if (from !== this.#slots[row] || (from !== NO_SLOT && to === NO_SLOT)) return false;
    }
    return true;
  }
}

/** The slot that has a sequence's recurrent state after the batch. */
function slotAfter({ slots }: BatchSequence): number {
  return slots?.to ?? NO_SLOT;
}
