// route and matmul_id on the GPU. A matmul over experts has one kernel for any number of tokens; it reads activations that were
// rounded before, as the kernels of a dense matmul for many tokens do.

import { matmulIdKernel } from "../wgsl/experts.ts";
import { MOST_EXPERTS, routeKernel } from "../wgsl/route.ts";
import { roundOnce } from "./matmul.ts";
import type { GpuOp } from "./op.ts";
import { readable } from "./readable.ts";

export const route: GpuOp<"route"> = {
  supports: ({ logits: { cols } }) =>
    cols <= MOST_EXPERTS || `${cols} experts; the GPU routes to at most ${MOST_EXPERTS}`,
  lower: (node) => [routeKernel(node)],
};

export const matmulId: GpuOp<"matmul_id"> = {
  supports: ({ weight }) => readable(weight.dtype),

  lower(node, context) {
    const own = context.weights.parts.get(node.weight.name)!;
    const slots = context.slotsOf?.(node.routes);
    const kernels = own.map((_, part) => matmulIdKernel(node, own, part, slots));
    return [...roundOnce(node, 1, false, context), ...kernels];
  },
};
