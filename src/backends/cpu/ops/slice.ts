// slice: copies columns of each row; concat: joins those of two rows.

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

export interface Concat {
  readonly op: "concat";
  readonly rows: Rows;
  readonly a: number;
  readonly b: number;
  readonly out: number;
  readonly groups: number;
  /** Columns of a group of a, and of b. */
  readonly first: number;
  readonly second: number;
}

export const lowerConcat: LowerNode<"concat"> = (c, { a, b, out, groups }): Concat => ({
  op: "concat",
  rows: out.rows,
  a: c.address(a),
  b: c.address(b),
  out: c.address(out),
  groups,
  first: a.cols / groups,
  second: b.cols / groups,
});

export const concat: InstructionDef<Concat> = {
  access: {
    stage: "row by row",
    of: ({ rows, a, b, out, groups, first, second }) => ({
      rows,
      reads: [area(a, groups * first * 4), area(b, groups * second * 4)],
      writes: [area(out, groups * (first + second) * 4)],
    }),
  },
  kernels: () => [],
  code: "wasm",

  execute(i, c) {
    const { f32 } = c.views;
    const { groups, first, second } = i;
    const [a, b, out] = [i.a / 4, i.b / 4, i.out / 4];
    return perRow(c, i.rows, (row) => {
      for (let group = row * groups; group < (row + 1) * groups; group++) {
        const target = out + group * (first + second);
        f32.copyWithin(target, a + group * first, a + (group + 1) * first);
        f32.copyWithin(target + first, b + group * second, b + (group + 1) * second);
      }
    });
  },
};
