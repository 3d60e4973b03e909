// rms_norm and layer_norm, over each row or each head of a row.

import type { Rows } from "../../../graph/graph.ts";
import { perRow } from "../executor.ts";
import { type InstructionDef, ifWhole, type LowerNode, mappedRows } from "./op.ts";

export interface RmsNorm {
  readonly op: "rms_norm";
  readonly rows: Rows;
  readonly x: number;
  readonly out: number;
  readonly weight: number;
  readonly cols: number;
  readonly size: number;
  readonly eps: number;
}

export const lowerRmsNorm: LowerNode<"rms_norm"> = (c, n): RmsNorm | string => {
  const size = n.weight.shape[0]!;
  if (size % 4 !== 0) return `groups of ${size}, kernels take multiples of 4`;
  return {
    op: "rms_norm",
    rows: n.x.rows,
    x: c.address(n.x),
    out: c.address(n.out),
    weight: c.vector(n.weight),
    cols: n.x.cols,
    size,
    eps: n.eps,
  };
};

export const rmsNorm: InstructionDef<RmsNorm> = {
  access: mappedRows(),
  kernels: () => ["rms_norm"],
  code: ({ size }) => [size],

  execute(i, c) {
    const { rms_norm } = c.kernels;
    const groups = i.cols / i.size;
    return perRow(c, i.rows, (row) => {
      const at = row * i.cols * 4;
      rms_norm!(i.x + at, i.weight, i.out + at, groups, i.size, i.eps);
    });
  },
};

/** kernel(x, weight, out, size, eps, bias); the kernel without a bias does not read the last. */
export interface LayerNorm {
  readonly op: "layer_norm";
  readonly rows: Rows;
  readonly kernel: string;
  readonly x: number;
  readonly out: number;
  readonly weight: number;
  readonly bias: number;
  readonly cols: number;
  readonly size: number;
  readonly eps: number;
}

export const lowerLayerNorm: LowerNode<"layer_norm"> = (c, n) =>
  ifWhole(
    n.weight.shape[0]!,
    (): LayerNorm => ({
      op: "layer_norm",
      rows: n.x.rows,
      kernel: n.bias ? "layer_norm_bias" : "layer_norm",
      x: c.address(n.x),
      out: c.address(n.out),
      weight: c.vector(n.weight),
      bias: n.bias ? c.vector(n.bias) : 0,
      cols: n.x.cols,
      size: n.weight.shape[0]!,
      eps: n.eps,
    }),
  );

export const layerNorm: InstructionDef<LayerNorm> = {
  access: mappedRows(),
  kernels: ({ kernel }) => [kernel],
  code: ({ size }) => [size],

  execute(i, c) {
    const kernel = c.kernels[i.kernel]!;
    const [rowBytes, groupBytes] = [i.cols * 4, i.size * 4];
    return perRow(c, i.rows, (row) => {
      const end = (row + 1) * rowBytes;
      for (let at = row * rowBytes; at < end; at += groupBytes) {
        kernel(i.x + at, i.weight, i.out + at, i.size, i.eps, i.bias);
      }
    });
  },
};
