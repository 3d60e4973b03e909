// mul_weight: each row times a vector of the file, which repeats along the row; by a kernel where it is whole vectors.

import type { Rows } from "../../../graph/graph.ts";
import { perRow } from "../executor.ts";
import { type InstructionDef, type LowerNode, mappedRows } from "./op.ts";

export interface MulWeight {
  readonly op: "mul_weight";
  readonly rows: Rows;
  readonly x: number;
  readonly out: number;
  /** f32 [size]. */
  readonly weight: number;
  readonly cols: number;
  readonly size: number;
}

const isWhole = ({ size }: Pick<MulWeight, "size">): boolean => size % 4 === 0;

export const lowerMulWeight: LowerNode<"mul_weight"> = (c, { x, out, weight }): MulWeight => ({
  op: "mul_weight",
  rows: out.rows,
  x: c.address(x),
  out: c.address(out),
  weight: c.vector(weight),
  cols: out.cols,
  size: weight.shape[0]!,
});

export const mulWeight: InstructionDef<MulWeight> = {
  access: mappedRows(),
  kernels: (i) => (isWhole(i) ? ["mul"] : []),
  code: (i) => (isWhole(i) ? [i.size] : []),

  execute(i, c) {
    const { cols, size } = i;
    const { mul } = c.kernels;
    if (isWhole(i)) {
      return perRow(c, i.rows, (row) => {
        const end = (row + 1) * cols * 4;
        for (let at = row * cols * 4; at < end; at += size * 4) {
          mul!(i.x + at, i.weight, i.out + at, size);
        }
      });
    }
    const { f32 } = c.views;
    const [x, out, weight] = [i.x / 4, i.out / 4, i.weight / 4];
    return perRow(c, i.rows, (row) => {
      for (let at = row * cols, n = 0; n < cols; n++, at++) {
        f32[out + at] = f32[x + at]! * f32[weight + (n % size)]!;
      }
    });
  },
};
