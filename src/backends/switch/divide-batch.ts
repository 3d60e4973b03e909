// A batch as two: the tokens that one backend computes and those of the other, each in the order that they had. Which side a token
// is for follows from whether it is part of a prompt or was generated, never from who else is in the batch: with another
// neighbour the same text would else be computed elsewhere, and rounded in another way.

import type { Batch } from "../../graph/batch.ts";
import type { Side } from "./newest.ts";

/** Which side computes what. */
export interface SideChoice {
  readonly prompt: Side;
  readonly generation: Side;
}

/** The side of all tokens; undefined: they differ. */
export function onlySide(batch: Batch, choice: SideChoice): Side | undefined {
  const first = sideOf(batch, 0, choice);
  for (let t = 1; t < batch.tokenCount; t++) {
    if (sideOf(batch, t, choice) !== first) return undefined;
  }
  return first;
}

/** Fills `parts`, one for each side, and `outputs`: where the row of each output of `batch` went, row * 2 + side. */
export function divideBatch(
  batch: Batch,
  choice: SideChoice,
  parts: readonly [Batch, Batch],
  outputs: Int32Array,
): void {
  for (const part of parts) {
    part.clear();
    part.wantsLogits = batch.wantsLogits;
  }
  let output = 0;
  for (let t = 0; t < batch.tokenCount; t++) {
    const side = sideOf(batch, t, choice);
    const isOutput = output < batch.outputCount && batch.outputRows[output] === t;
    const row = parts[side].add(
      batch.tokens[t]!,
      batch.positions[t]!,
      batch.sequences[t]!,
      isOutput,
      batch.generated[t] === 1,
    );
    if (isOutput) outputs[output++] = row * 2 + side;
  }
}

function sideOf(batch: Batch, token: number, { prompt, generation }: SideChoice): Side {
  return batch.generated[token] === 1 ? generation : prompt;
}
