// temperature: each row times a factor of its token's position.

import type { Rows } from "../../../graph/graph.ts";
import { temperatureAt } from "../../../graph/reference.ts";
import { perRow } from "../executor.ts";
import { type InstructionDef, ifWhole, type LowerNode, mappedRows } from "./op.ts";

export interface Temperature {
  readonly op: "temperature";
  readonly rows: Rows;
  readonly x: number;
  readonly out: number;
  readonly cols: number;
  readonly scale: number;
  readonly span: number;
  readonly offset: number;
}

export const lowerTemperature: LowerNode<"temperature"> = (c, n) =>
  ifWhole(
    n.out.cols,
    (): Temperature => ({
      op: "temperature",
      rows: n.out.rows,
      x: c.address(n.x),
      out: c.address(n.out),
      cols: n.out.cols,
      scale: n.scale,
      span: n.span,
      offset: n.offset,
    }),
  );

export const temperature: InstructionDef<Temperature> = {
  access: mappedRows(),
  kernels: () => ["scale"],
  code: ({ cols }) => [cols],

  execute(i, c) {
    const { scale } = c.kernels;
    const { i32 } = c.views;
    const positions = c.program.batch.positions / 4;
    return perRow(c, i.rows, (row) => {
      const at = row * i.cols * 4;
      scale!(i.x + at, i.out + at, i.cols, temperatureAt(i, i32[positions + row]!));
    });
  },
};
