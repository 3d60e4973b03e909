// softmax of each row. A chunk is a row, which must be whole vectors.

import type { Rows } from "../../../graph/graph.ts";
import { perRow } from "../executor.ts";
import { type InstructionDef, ifWhole, type LowerNode, mappedRows } from "./op.ts";

export interface Softmax {
  readonly op: "softmax";
  readonly rows: Rows;
  readonly x: number;
  readonly out: number;
  readonly cols: number;
}

// The kernel pads a row to whole vectors, which would overwrite the next row.
export const lowerSoftmax: LowerNode<"softmax"> = (c, { x, out }) =>
  ifWhole(x.cols, (): Softmax => {
    return { op: "softmax", rows: x.rows, x: c.address(x), out: c.address(out), cols: x.cols };
  });

export const softmax: InstructionDef<Softmax> = {
  access: mappedRows(),
  kernels: () => ["softmax"],
  code: ({ cols }) => [cols],

  execute(i, c) {
    const kernel = c.kernels.softmax!;
    return perRow(c, i.rows, (row) => {
      const at = row * i.cols * 4;
      kernel(i.x + at, i.out + at, i.cols, 1);
    });
  },
};
