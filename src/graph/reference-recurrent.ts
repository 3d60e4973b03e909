// The short convolution of the graph in plain TypeScript; reference-scan.ts has the other ops that keep recurrent state. The tokens of a sequence
// are next to each other in a batch. An op goes over them from the state in slot `from`, and stores the state after the last
// of them in slot `to`.

import { type Batch, type BatchSequence, NO_SLOT, type SlotPair } from "./batch.ts";

/** Recurrent state of one layer: slot s begins at float s * stride. */
export interface StoredRecurrent {
  readonly floats: Float32Array;
  readonly stride: number;
}

export interface ShortConv {
  /** [tokens, cols] */
  readonly x: Float32Array;
  readonly out: Float32Array;
  readonly cols: number;
  readonly taps: number;
  /** The taps of a column; valid until the next call. */
  weightOf(column: number): Float32Array;
  biasOf(column: number): number;
  /** [taps - 1, cols] in each slot, the oldest input first. */
  readonly state: StoredRecurrent;
}

export function shortConv(conv: ShortConv, batch: Batch): void {
  const { x, out, cols, taps, state } = conv;
  for (let first = 0; first < batch.tokenCount; ) {
    const last = lastOf(batch, first);
    const { from, to } = slotsOf(batch.sequences[first]!);
    /** The input of row `row` of the batch; rows before the sequence's first are in the state. */
    const input = (row: number, column: number): number => {
      if (row >= first) return x[row * cols + column]!;
      if (from === NO_SLOT) return 0;
      return state.floats[from * state.stride + (row - first + taps - 1) * cols + column]!;
    };
    for (let column = 0; column < cols; column++) {
      const weight = conv.weightOf(column);
      for (let row = first; row <= last; row++) {
        let sum = conv.biasOf(column);
        for (let k = 0; k < taps; k++) sum += weight[k]! * input(row - taps + 1 + k, column);
        out[row * cols + column] = sum;
      }
      if (to === NO_SLOT) continue;
      for (let k = 0; k < taps - 1; k++) {
        const at = to * state.stride + k * cols + column;
        state.floats[at] = input(last - taps + 2 + k, column);
      }
    }
    first = last + 1;
  }
}

/** The last row of the sequence that begins in row `first`. */
export function lastOf({ sequences, tokenCount }: Batch, first: number): number {
  let last = first;
  while (last + 1 < tokenCount && sequences[last + 1] === sequences[first]) last++;
  return last;
}

const noSlots = { from: NO_SLOT, to: NO_SLOT };

/** A sequence without slots begins with zeros, and its state is not stored. */
export function slotsOf({ slots = noSlots }: BatchSequence): SlotPair {
  return slots;
}
