// short_conv: a lane computes one column of some neighbouring tokens, whose inputs it loads once; for the last token of a sequence it
// also writes the column's state for the next batch, to another slot than the one that is read.

import type { NodeOf } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { SEGMENT_WORDS } from "../batch-area.ts";
import { type Inlined, nothingInlined, ValueTexts } from "./inlined.ts";
import { type Kernel, LANES, makeKernel } from "./kernel.ts";

/** NO_SLOT as an unsigned word. */
const NONE = "0xffffffffu";

/** Tokens of a lane. */
const TOKENS = 4;

export function shortConvKernel(
  node: NodeOf<"short_conv">,
  batch: BatchLayout,
  inlined: Inlined = nothingInlined,
): Kernel {
  const { x, out, weight, bias, state } = node;
  const { cols } = x;
  const taps = weight.shape[1]!;
  const tail = taps - 1;
  const values = new ValueTexts(inlined.before);
  values.read("inputAt", x);
  const [weights, biases] = [values.vector(weight), bias && values.vector(bias)];
  const result = values.stored(out, inlined.after);
  const each = (count: number, text: (i: number) => string): string =>
    Array.from({ length: count }, (_, i) => text(i)).join("\n  ");
  return makeKernel({
    name: `short_conv [${cols}, ${taps}]`,
    bindings: [
      ...values.bindings,
      { name: "state", type: "f32", source: { kind: "recurrent", state }, writes: true },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: result }, writes: true },
    ],
    declarations: `${values.functions}
/** The input of a row; those before the first of its sequence are in the state. */
fn inputOf(row: i32, first: i32, oldSlot: u32, column: u32) -> f32 {
  if (row >= first) { return inputAt(u32(row), column); }
  if (oldSlot == ${NONE}) { return 0.0; }
  return state[(oldSlot * ${tail}u + u32(row - first + ${tail})) * ${cols}u + column];
}`,
    rows: out.rows,
    grid: (rows) => [Math.ceil(cols / LANES), Math.ceil(rows / TOKENS), 1],
    body: `
  let column = group.x * ${LANES}u + lane;
  if (column >= ${cols}u) { return; }
  let start = group.y * ${TOKENS}u;
  let last = batch[0] - 1u;
  // All loads come before the first use. Rows behind the last one are computed like it, and not stored.
  ${each(taps, (k) => `let weight_${k} = ${weights}[column * ${taps}u + ${k}u];`)}
  ${each(TOKENS, (i) => `let input${i} = inputAt(min(start + ${i}u, last), column);`)}
  ${each(TOKENS, (i) => `let rest${i} = restAt(min(start + ${i}u, last), column);`)}
  ${each(tail, (k) => `var before${k} = 0.0;`)}
  var known = ${NONE}; // the sequence that the inputs before are of
  ${each(
    TOKENS,
    (i) => `
  if (start + ${i}u <= last) {
    let row = start + ${i}u;
    let sequence = batch[${batch.sequences}u + row];
    let segment = ${batch.segments}u + sequence * ${SEGMENT_WORDS}u;
    let first = i32(batch[segment]);
    let oldSlot = batch[segment + 1u];
    let newSlot = batch[segment + 2u];
    if (sequence != known) {
      known = sequence;
      ${each(tail, (k) => `before${k} = inputOf(i32(row) - ${tail - k}, first, oldSlot, column);`)}
    }
    var sum = ${biases ? `${biases}[column]` : "0.0"};
    ${each(tail, (k) => `sum = fma(weight_${k}, before${k}, sum);`)}
    sum = fma(weight_${tail}, input${i}, sum);
    result[row * ${cols}u + column] = stored(sum, rest${i}, column);
    ${each(tail - 1, (k) => `before${k} = before${k + 1};`)}
    before${tail - 1} = input${i};
    let isLast = row == last || batch[${batch.sequences}u + row + 1u] != sequence;
    if (isLast && newSlot != ${NONE}) {
      ${each(tail, (k) => `state[(newSlot * ${tail}u + ${k}u) * ${cols}u + column] = before${k};`)}
    }
  }`,
  )}`,
  });
}
