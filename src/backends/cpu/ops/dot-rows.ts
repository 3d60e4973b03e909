// One row of weights times every token, for matmuls that go row by row: the kernel dot_rows (opt level 2), or the same in plain
// TypeScript (opt level 1), whose results have the bits of the reference.

import { dot } from "../../../graph/reference-memory.ts";
import type { ExecutorContext } from "../executor.ts";
import type { MatmulRows } from "./matmul-data.ts";

/** Addresses and strides are bytes. */
type DotRows = (
  w: number,
  x: number,
  out: number,
  columns: number,
  tokens: number,
  xStride: number,
  outStride: number,
) => void;

export function dotRowsFor({ kernel }: MatmulRows, { kernels, views }: ExecutorContext): DotRows {
  return kernel === undefined ? plainDotRows(views.f32) : kernels[kernel]!;
}

function plainDotRows(f32: Float32Array): DotRows {
  return (w, x, out, columns, tokens, xStride, outStride) => {
    for (let t = 0; t < tokens; t++) {
      f32[(out + t * outStride) / 4] = dot(f32, (x + t * xStride) / 4, f32, w / 4, columns);
    }
  };
}
