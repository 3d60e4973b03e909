// Values on their way between the parts of a split graph (graph/split.ts), in host memory: those of a section's list one after
// the other, each with the rows that the batch has.

import type { Batch } from "../graph/batch.ts";
import type { Value } from "../graph/graph.ts";
import { mostRows, type PlanLimits } from "../graph/plan.ts";

/** The memory in which a backend on the processor keeps a value: [rows, cols]. */
type ValueMemory = (value: Value) => Float32Array;

/** Copies the values that come from the other part to where nodes read them. */
export function takeValues(
  values: readonly Value[],
  batch: Batch,
  memory: ValueMemory,
  input: Float32Array,
): void {
  let at = 0;
  for (const value of values) {
    const length = batch.count(value.rows) * value.cols;
    memory(value).set(input.subarray(at, at + length));
    at += length;
  }
}

/** Copies the values that the other part reads out of the backend. */
export function giveValues(
  values: readonly Value[],
  batch: Batch,
  memory: ValueMemory,
  output: Float32Array,
): void {
  let at = 0;
  for (const value of values) {
    const length = batch.count(value.rows) * value.cols;
    output.set(memory(value).subarray(0, length), at);
    at += length;
  }
}

/** Floats of these values in the largest batch. */
export function crossFloats(values: readonly Value[], limits: PlanLimits): number {
  return values.reduce((sum, { rows, cols }) => sum + mostRows(rows, limits) * cols, 0);
}
