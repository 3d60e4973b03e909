// embed: the row of the table for each token, or its position, unpacked. A table in parts has a kernel for each, which skips rows of other parts.

import type { NodeOf } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import type { WeightPart } from "../weight-layout.ts";
import { type Kernel, makeKernel, perItem } from "./kernel.ts";
import { weightText } from "./weights.ts";

export function embedKernel(
  node: NodeOf<"embed">,
  parts: readonly WeightPart[],
  part: number,
  batch: BatchLayout,
): Kernel {
  const { table, out } = node;
  const { cols } = out;
  const { rowStart, rows } = parts[part]!;
  const { bindings, declarations } = weightText(table, { kind: "weight", weight: table, part });
  return makeKernel({
    name: `embed ${table.dtype.name} [${rows}, ${cols}]`,
    bindings: [
      ...bindings,
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    declarations,
    rows: out.rows,
    grid: perItem(Math.ceil(cols / 4)),
    body: `
  let i = (group.x * 64u + lane) * 4u;${tableRowText(node, batch, rowStart)}
  if (i >= ${cols}u || row >= ${rows}u) { return; }
  let values = weight4(row, i);
  for (var j = 0u; j < 4u && i + j < ${cols}u; j++) { result[group.y * ${cols}u + i + j] = values[j]; }`,
  });
}

/** The row of a token in a part of the table that begins with `rowStart`; it wraps around below that. */
export function tableRowText(
  { by, substitutes }: NodeOf<"embed">,
  batch: BatchLayout,
  rowStart: number,
): string {
  const token = `batch[${by === "token" ? batch.tokens : batch.positions}u + group.y]`;
  if (!substitutes) return `\n  let row = ${token} - ${rowStart}u; // wraps around below rowStart`;
  const pairs = Array.from({ length: substitutes.length / 2 }, (_, i) => {
    const [from, to] = [substitutes[2 * i]!, substitutes[2 * i + 1]!];
    return `\n  if (token == ${from}u) { row = ${to}u - ${rowStart}u; }`;
  });
  return `\n  let token = ${token};\n  var row = token - ${rowStart}u; // wraps around below rowStart${pairs.join("")}`;
}
