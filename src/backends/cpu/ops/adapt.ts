// gather and adapt: copy the rows that use an adapter (LoRA) to rows of their own, and add the result to the original rows.

import { adapterOf, type Rows } from "../../../graph/graph.ts";
import { type ExecutorContext, perRow } from "../executor.ts";
import type { AdapterArea } from "../program.ts";
import { area, type InstructionDef, ifWhole, type LowerNode } from "./op.ts";

/** The lists of the rows of an adapter in this batch. */
function listsOf({ program }: ExecutorContext, rows: Rows): AdapterArea {
  const { rows: kind, adapter } = adapterOf(rows)!;
  const { tokens, outputs } = program.batch.adapters[adapter]!;
  return kind === "tokens" ? tokens : outputs;
}

export interface Gather {
  readonly op: "gather";
  readonly rows: Rows;
  readonly x: number;
  readonly out: number;
  readonly cols: number;
}

export const lowerGather: LowerNode<"gather"> = (c, { x, out }) =>
  ifWhole(
    x.cols,
    (): Gather => ({
      op: "gather",
      rows: out.rows,
      x: c.address(x),
      out: c.address(out),
      cols: x.cols,
    }),
  );

export const gather: InstructionDef<Gather> = {
  access: {
    stage: "row by row",
    of: ({ rows, x, out, cols }) => ({
      rows,
      reads: [area(x, 0)],
      writes: [area(out, cols * 4)],
    }),
  },
  kernels: () => ["copy"],
  code: ({ cols }) => [cols],

  execute(i, c) {
    const { copy } = c.kernels;
    const rows = listsOf(c, i.rows).rows / 4;
    return perRow(c, i.rows, (row) => {
      const from = c.views.i32[rows + row]!;
      copy!(i.x + from * i.cols * 4, i.out + row * i.cols * 4, i.cols);
    });
  },
};

export interface Adapt {
  readonly op: "adapt";
  /** The rows of the result. */
  readonly rows: Rows;
  /** The rows of x. */
  readonly adapted: Rows;
  readonly base: number;
  readonly x: number;
  /** The address of base where it is not read after this. */
  readonly out: number;
  readonly cols: number;
  readonly factor: number;
}

export const lowerAdapt: LowerNode<"adapt"> = (c, { base, x, out, factor }) =>
  ifWhole(
    out.cols,
    (): Adapt => ({
      op: "adapt",
      rows: out.rows,
      adapted: x.rows,
      base: c.address(base),
      x: c.address(x),
      out: c.address(out),
      cols: out.cols,
      factor,
    }),
  );

/** In place, only rows of the adapter have something to do; otherwise all rows are copied. */
function rowsOf({ rows, adapted, base, out }: Adapt): Rows {
  return base === out ? adapted : rows;
}

export const adapt: InstructionDef<Adapt> = {
  access: {
    stage: "row by row",
    of: (i) => ({
      rows: rowsOf(i),
      reads: [area(i.base, 0), area(i.x, 0)],
      writes: [area(i.out, 0)],
    }),
  },
  kernels: () => ["copy", "scale_add"],
  code: ({ cols }) => [cols],

  execute(i, c) {
    const { copy, scale_add } = c.kernels;
    const { i32, f32 } = c.views;
    const lists = listsOf(c, i.adapted);
    const [rows, places, scales] = [lists.rows / 4, lists.places / 4, lists.scales / 4];
    const rowBytes = i.cols * 4;
    const add = (row: number, place: number) =>
      scale_add!(
        i.x + place * rowBytes,
        i.out + row * rowBytes,
        i.cols,
        i.factor * f32[scales + row]!,
      );
    if (i.base === i.out) {
      return perRow(c, i.adapted, (place) => add(i32[rows + place]!, place));
    }
    return perRow(c, i.rows, (row) => {
      copy!(i.base + row * rowBytes, i.out + row * rowBytes, i.cols);
      const place = i32[places + row]!;
      if (place >= 0) add(row, place);
    });
  },
};
