// embed: the token embeddings or learned positions, rows of a table as floats.

import { substituted } from "../../../graph/reference.ts";
import { perRow } from "../executor.ts";
import { makeRowReader } from "../memory/table-rows.ts";
import type { TableRows } from "../program.ts";
import { area, type InstructionDef, type LowerNode } from "./op.ts";

export interface Embed {
  readonly op: "embed";
  readonly table: TableRows;
  readonly out: number;
  readonly by: "token" | "position";
  readonly substitutes: readonly number[] | undefined;
  /** kernel(row, out, cols) for raw rows; undefined: rows are unpacked by TypeScript. */
  readonly kernel: string | undefined;
}

/**
 * Kernels that convert a raw row of a table to floats, and the number of columns that they take at a time. Rows of other types are
 * dequantized by TypeScript, which takes 3 us for 2048 columns, where a token takes 10 ms and more.
 */
const rowKernels: Readonly<Record<string, { kernel: string; unit: number }>> = {
  f32: { kernel: "copy", unit: 4 },
  f16: { kernel: "widen_f16", unit: 16 },
  bf16: { kernel: "widen_bf16", unit: 16 },
};

export const lowerEmbed: LowerNode<"embed"> = (c, n): Embed => {
  const table = c.rowsOf(n.table);
  const reader = table.layout === "raw" ? rowKernels[table.dtype] : undefined;
  const kernel = reader && table.cols % reader.unit === 0 ? reader.kernel : undefined;
  return {
    op: "embed",
    table,
    out: c.address(n.out),
    by: n.by,
    substitutes: n.substitutes,
    kernel,
  };
};

export const embed: InstructionDef<Embed> = {
  access: {
    stage: "row by row",
    of: ({ out, table }) => ({ rows: "tokens", reads: [], writes: [area(out, table.cols * 4)] }),
  },
  kernels: ({ kernel }) => (kernel === undefined ? [] : [kernel]),
  code: ({ table }) => [table.cols / 4], // widen_* takes four vectors at a time

  execute(i, c) {
    const { table } = i;
    const { tokens, positions } = c.program.batch;
    const rows = (i.by === "token" ? tokens : positions) / 4;
    const indexOf = (row: number) => substituted(c.views.i32[rows + row]!, i.substitutes);
    if (i.kernel !== undefined && table.layout === "raw") {
      const kernel = c.kernels[i.kernel]!;
      const { at, rowBytes, cols } = table;
      return perRow(c, "tokens", (row) =>
        kernel(at + indexOf(row) * rowBytes, i.out + row * cols * 4, cols),
      );
    }
    const { views, at } = c.memories.place(table.at);
    const read = makeRowReader({ ...table, at }, views);
    const { f32 } = c.views;
    return perRow(c, "tokens", (row) => read(indexOf(row), f32, i.out / 4 + row * table.cols));
  },
};
