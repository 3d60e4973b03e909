// select: copies the rows of the batch's outputs.

import { perRow } from "../executor.ts";
import { area, type InstructionDef, ifWhole, type LowerNode } from "./op.ts";

export interface Select {
  readonly op: "select";
  readonly x: number;
  readonly out: number;
  readonly cols: number;
}

export const lowerSelect: LowerNode<"select"> = (c, { x, out }) =>
  ifWhole(x.cols, (): Select => {
    return { op: "select", x: c.address(x), out: c.address(out), cols: x.cols };
  });

export const select: InstructionDef<Select> = {
  access: {
    stage: "row by row",
    of: ({ x, out, cols }) => ({
      rows: "outputs",
      reads: [area(x, 0)],
      writes: [area(out, cols * 4)],
    }),
  },
  kernels: () => ["copy"],
  code: ({ cols }) => [cols],

  execute(i, c) {
    const { copy } = c.kernels;
    const rows = c.program.batch.outputRows / 4;
    return perRow(c, "outputs", (row) => {
      const from = c.views.i32[rows + row]!;
      copy!(i.x + from * i.cols * 4, i.out + row * i.cols * 4, i.cols);
    });
  },
};
