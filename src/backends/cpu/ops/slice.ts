// slice: copies columns of each row.

import type { Rows } from "../../../graph/graph.ts";
import { perRow } from "../executor.ts";
import { area, type InstructionDef, type LowerNode } from "./op.ts";

export interface Slice {
  readonly op: "slice";
  readonly rows: Rows;
  readonly x: number;
  readonly out: number;
  readonly groups: number;
  /** Columns of a group of x, the first of those that are copied, and their number. */
  readonly size: number;
  readonly from: number;
  readonly count: number;
}

export const lowerSlice: LowerNode<"slice"> = (c, { x, out, groups, from }): Slice => ({
  op: "slice",
  rows: out.rows,
  x: c.address(x),
  out: c.address(out),
  groups,
  size: x.cols / groups,
  from,
  count: out.cols / groups,
});

export const slice: InstructionDef<Slice> = {
  access: {
    stage: "row by row",
    of: ({ rows, x, out, groups, size, count }) => ({
      rows,
      reads: [area(x, groups * size * 4)],
      writes: [area(out, groups * count * 4)],
    }),
  },
  kernels: ({ count }) => (count % 4 === 0 ? ["copy"] : []),
  code: ({ count }) => [count],

  execute(i, c) {
    const { copy } = c.kernels;
    const { f32 } = c.views;
    const { groups, size, from, count } = i;
    return perRow(c, i.rows, (row) => {
      for (let group = row * groups; group < (row + 1) * groups; group++) {
        const [source, target] = [i.x + (group * size + from) * 4, i.out + group * count * 4];
        if (count % 4 === 0) copy!(source, target, count);
        else f32.copyWithin(target / 4, source / 4, source / 4 + count);
      }
    });
  },
};
