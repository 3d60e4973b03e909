// short_conv: a thread computes one column of one token; for the last token of a sequence it also writes the column's state for
// the next batch, to another slot than the one that is read.

import type { NodeOf } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { SEGMENT_WORDS } from "../batch-area.ts";
import { type Kernel, makeKernel, perItem } from "./kernel.ts";

/** NO_SLOT as an unsigned word. */
const NONE = "0xffffffffu";

export function shortConvKernel(node: NodeOf<"short_conv">, batch: BatchLayout): Kernel {
  const { x, out, weight, bias, state } = node;
  const { cols } = x;
  const taps = weight.shape[1]!;
  const tail = taps - 1;
  return makeKernel({
    name: `short_conv [${cols}, ${taps}]`,
    bindings: [
      { name: "x", type: "f32", source: { kind: "value", value: x } },
      { name: "weight", type: "f32", source: { kind: "weight", weight, part: 0 } },
      { name: "state", type: "f32", source: { kind: "recurrent", state }, writes: true },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
      ...(bias
        ? [
            {
              name: "bias",
              type: "f32",
              source: { kind: "weight", weight: bias, part: 0 } as const,
            },
          ]
        : []),
    ],
    declarations: `
/** The input of a row; those before the first of its sequence are in the state. */
fn inputOf(row: i32, first: i32, oldSlot: u32, column: u32) -> f32 {
  if (row >= first) { return x[u32(row) * ${cols}u + column]; }
  if (oldSlot == ${NONE}) { return 0.0; }
  return state[(oldSlot * ${tail}u + u32(row - first + ${tail})) * ${cols}u + column];
}`,
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let column = group.x * 64u + lane;
  if (column >= ${cols}u) { return; }
  let row = i32(group.y);
  let sequence = batch[${batch.sequences}u + group.y];
  let segment = ${batch.segments}u + sequence * ${SEGMENT_WORDS}u;
  let first = i32(batch[segment]);
  let oldSlot = batch[segment + 1u];
  let newSlot = batch[segment + 2u];
  var sum = ${bias ? "bias[column]" : "0.0"};
  for (var k = 0; k < ${taps}; k++) {
    sum += weight[column * ${taps}u + u32(k)] * inputOf(row - ${tail} + k, first, oldSlot, column);
  }
  result[group.y * ${cols}u + column] = sum;
  let isLast = group.y + 1u == batch[0] || batch[${batch.sequences}u + group.y + 1u] != sequence;
  if (!isLast || newSlot == ${NONE}) { return; }
  for (var k = 0; k < ${tail}; k++) {
    state[(newSlot * ${tail}u + u32(k)) * ${cols}u + column] = inputOf(row - ${tail - 1} + k, first, oldSlot, column);
  }`,
  });
}
