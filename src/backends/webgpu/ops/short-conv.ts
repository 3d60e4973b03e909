// short_conv on the GPU: only for float weights, as files have them.

import { shortConvKernel } from "../wgsl/short-conv.ts";
import type { GpuOp } from "./op.ts";

export const shortConv: GpuOp<"short_conv"> = {
  supports: ({ weight }) =>
    weight.dtype.asFloat32 !== undefined ||
    `the GPU does not read convolutions of ${weight.dtype.name}`,
  lower: (node, { batch }) => [shortConvKernel(node, batch)],
  inline: (node, inlined, { batch }) => shortConvKernel(node, batch, inlined),
};
