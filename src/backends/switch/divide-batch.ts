// Divides a batch in two: the tokens that one backend computes and those of the other, each in their old order. The side of a token
// follows from whether it is part of a prompt or was generated, and from the number of tokens of its own sequence in the batch, never
// from other sequences in the batch: with another neighbour the same text would else be computed on the other side, and rounded in
// another way.

import type { Batch } from "../../graph/batch.ts";
import { adapterOf, type Value } from "../../graph/graph.ts";
import { lastOf, type Side } from "./newest.ts";

/** The side that computes each kind of token. */
export interface SideChoice {
  readonly prompt: Side;
  readonly generation: Side;
  /** A prompt of which a batch has fewer tokens is computed where generated tokens are. Default: any number is enough. */
  readonly fewest?: number | undefined;
}

/** The side of all tokens; undefined: they differ. */
export function onlySide(batch: Batch, choice: SideChoice): Side | undefined {
  let only: Side | undefined;
  for (let t = 0; t < batch.tokenCount; ) {
    const last = lastOf(batch, t);
    const side = sideOf(batch, t, last - t + 1, choice);
    if (only !== undefined && side !== only) return undefined;
    only = side;
    t = last + 1;
  }
  return only ?? choice.generation;
}

/** The new rows of a batch: row * 2 + side. */
export interface Places {
  /** New rows of each token, and of each output. */
  readonly tokens: Int32Array;
  readonly outputs: Int32Array;
}

/** Fills `parts`, one for each side, and `places`. */
export function divideBatch(
  batch: Batch,
  choice: SideChoice,
  parts: readonly [Batch, Batch],
  places: Places,
): void {
  for (const part of parts) {
    part.clear();
    part.wantsLogits = batch.wantsLogits;
  }
  let output = 0;
  for (let t = 0; t < batch.tokenCount; ) {
    const last = lastOf(batch, t);
    const side = sideOf(batch, t, last - t + 1, choice);
    for (; t <= last; t++) {
      const part = parts[side];
      const isOutput = output < batch.outputCount && batch.outputRows[output] === t;
      places.tokens[t] = part.tokenCount * 2 + side;
      const row = part.add(
        batch.tokens[t]!,
        batch.positions[t]!,
        batch.sequences[t]!,
        isOutput,
        batch.generated[t] === 1,
      );
      if (isOutput) places.outputs[output++] = row * 2 + side;
    }
  }
}

/** Joins the values that both sides gave (cross-values.ts): their rows in the order of the whole batch. */
export function joinRows(
  values: readonly Value[],
  batch: Batch,
  parts: readonly [Batch, Batch],
  places: Places,
  given: readonly [Float32Array, Float32Array],
  target: Float32Array,
): void {
  let at = 0;
  const from = [0, 0];
  for (const { rows, cols, name } of values) {
    if (adapterOf(rows)) throw new Error(`${name}: rows of an adapter are not joined`);
    const own = rows === "tokens" ? places.tokens : places.outputs;
    const count = batch.count(rows);
    for (let row = 0; row < count; row++) {
      const side = (own[row]! & 1) as Side;
      const start = from[side]! + (own[row]! >> 1) * cols;
      target.set(given[side].subarray(start, start + cols), at);
      at += cols;
    }
    for (const side of [0, 1] as const) from[side]! += parts[side].count(rows) * cols;
  }
}

function sideOf(
  batch: Batch,
  token: number,
  tokens: number,
  { prompt, generation, fewest = 0 }: SideChoice,
): Side {
  return batch.generated[token] === 1 || tokens < fewest ? generation : prompt;
}
