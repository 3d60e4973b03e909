// clamp: values between -limit and limit. Plain TypeScript: two comparisons a value.

import type { Rows } from "../../../graph/graph.ts";
import { perRow } from "../executor.ts";
import { type InstructionDef, type LowerNode, mappedRows } from "./op.ts";

export interface Clamp {
  readonly op: "clamp";
  readonly rows: Rows;
  readonly x: number;
  readonly out: number;
  readonly cols: number;
  readonly limit: number;
}

export const lowerClamp: LowerNode<"clamp"> = (c, { x, out, limit }): Clamp => ({
  op: "clamp",
  rows: out.rows,
  x: c.address(x),
  out: c.address(out),
  cols: out.cols,
  limit: Math.fround(limit),
});

export const clamp: InstructionDef<Clamp> = {
  access: mappedRows(),
  kernels: () => [],
  code: "wasm",

  execute({ rows, x, out, cols, limit }, c) {
    const { f32 } = c.views;
    return perRow(c, rows, (row) => {
      for (let at = row * cols; at < (row + 1) * cols; at++) {
        f32[out / 4 + at] = Math.max(-limit, Math.min(limit, f32[x / 4 + at]!));
      }
    });
  },
};
