// xielu: the activation of Apertus. Plain TypeScript, with the same bits as the reference.

import type { Rows } from "../../../graph/graph.ts";
import { xieluOf } from "../../../graph/reference.ts";
import { perRow } from "../executor.ts";
import { type InstructionDef, type LowerNode, mappedRows } from "./op.ts";

export interface Xielu {
  readonly op: "xielu";
  readonly rows: Rows;
  readonly x: number;
  readonly out: number;
  readonly cols: number;
  readonly alphaN: number;
  readonly alphaP: number;
  readonly beta: number;
  readonly eps: number;
}

export const lowerXielu: LowerNode<"xielu"> = (c, n): Xielu => ({
  op: "xielu",
  rows: n.out.rows,
  x: c.address(n.x),
  out: c.address(n.out),
  cols: n.out.cols,
  alphaN: n.alphaN,
  alphaP: n.alphaP,
  beta: n.beta,
  eps: n.eps,
});

export const xielu: InstructionDef<Xielu> = {
  access: mappedRows(),
  kernels: () => [],
  code: "wasm",

  execute(i, c) {
    const { f32 } = c.views;
    const { cols } = i;
    const [x, out, activate] = [i.x / 4, i.out / 4, xieluOf(i)];
    return perRow(c, i.rows, (row) => {
      for (let at = row * cols; at < (row + 1) * cols; at++) {
        f32[out + at] = activate(f32[x + at]!);
      }
    });
  },
};
