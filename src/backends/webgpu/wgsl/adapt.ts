// gather and adapt: copy the rows that use an adapter (LoRA) to rows of their own, and add the result to the original rows.

import { adapterOf, type NodeOf, type Rows } from "../../../graph/graph.ts";
import type { AdapterWords, BatchLayout } from "../batch-area.ts";
import { float, type Kernel, makeKernel, perItem } from "./kernel.ts";

function listsOf({ adapters }: BatchLayout, rows: Rows): AdapterWords {
  const { rows: kind, adapter } = adapterOf(rows)!;
  const { tokens, outputs } = adapters[adapter]!;
  return kind === "tokens" ? tokens : outputs;
}

export function gatherKernel({ x, out }: NodeOf<"gather">, batch: BatchLayout): Kernel {
  const { cols } = x;
  return makeKernel({
    name: `gather [${cols}]`,
    bindings: [
      { name: "x", type: "f32", source: { kind: "value", value: x } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * 64u + lane;
  if (i >= ${cols}u) { return; }
  result[group.y * ${cols}u + i] = x[batch[${listsOf(batch, out.rows).rows}u + group.y] * ${cols}u + i];`,
  });
}

export function adaptKernel({ base, x, out, factor }: NodeOf<"adapt">, batch: BatchLayout): Kernel {
  const { cols } = out;
  const { places, scales } = listsOf(batch, x.rows);
  return makeKernel({
    name: `adapt [${cols}]`,
    bindings: [
      { name: "base", type: "f32", source: { kind: "value", value: base } },
      { name: "x", type: "f32", source: { kind: "value", value: x } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * 64u + lane;
  if (i >= ${cols}u) { return; }
  let at = group.y * ${cols}u + i;
  let place = batch[${places}u + group.y];
  var value = base[at];
  if (place != 0xffffffffu) {
    value += x[place * ${cols}u + i] * (${float(factor)} * bitcast<f32>(batch[${scales}u + group.y]));
  }
  result[at] = value;`,
  });
}

/** For a result in the base's buffer: only rows of the adapter have something to do, and a batch without them skips it. */
export function adaptInPlace({ x, out, factor }: NodeOf<"adapt">, batch: BatchLayout): Kernel {
  const { cols } = out;
  const { rows, scales } = listsOf(batch, x.rows);
  return makeKernel({
    name: `adapt in place [${cols}]`,
    bindings: [
      { name: "x", type: "f32", source: { kind: "value", value: x } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: x.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * 64u + lane;
  if (i >= ${cols}u) { return; }
  let row = batch[${rows}u + group.y];
  let at = row * ${cols}u + i;
  result[at] += x[group.y * ${cols}u + i] * (${float(factor)} * bitcast<f32>(batch[${scales}u + row]));`,
  });
}
