// embed on the GPU: a kernel for each part of the table.

import { embedKernel } from "../wgsl/embed.ts";
import type { GpuOp } from "./op.ts";
import { readable } from "./readable.ts";

export const embed: GpuOp<"embed"> = {
  supports: ({ table }) => readable(table.dtype),
  lower(node, { weights, batch }) {
    const own = weights.parts.get(node.table.name)!;
    return own.map((_, part) => embedKernel(node, own, part, batch));
  },
};
