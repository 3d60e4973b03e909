// route and matmul_id on the GPU. A matmul over experts has kernels for few tokens and for many, where lanes can multiply the type of
// its weights (wgsl/matmul-experts.ts), and otherwise one for any number of tokens. All of them read activations that were prepared or
// rounded before, once for all matmuls that read them.

import type { NodeOf } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { matmulIdKernel } from "../wgsl/experts.ts";
import { groupPairsKernel } from "../wgsl/group-pairs.ts";
import type { Kernel } from "../wgsl/kernel.ts";
import {
  type ExpertMatmul,
  expertMatmulOf,
  fewTokens,
  matmulPairKernel,
  matmulTileKernel,
  tilesOf,
} from "../wgsl/matmul-experts.ts";
import { prepareKernel } from "../wgsl/prepare-activations.ts";
import { roundsToHalves } from "../wgsl/round-activations.ts";
import { MOST_EXPERTS, routeKernel } from "../wgsl/route.ts";
import { TEAM } from "../wgsl/teams.ts";
import { isRounded, roundOnce } from "./matmul.ts";
import type { GpuOp, LowerContext } from "./op.ts";
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
    // Half floats of activations that they cannot hold: only the kernel that reads floats has room for them.
    const isWide = context.wide && roundsToHalves(node.weight);
    const tuned = isWide ? undefined : expertMatmulOf(node, context.workgroupBytes, slots);
    if (tuned) return tunedKernels(tuned, own, context);
    const kernels = own.map((_, part) => matmulIdKernel(node, own, part, slots));
    return [...roundOnce(node, 1, false, context), ...kernels];
  },
};

function tunedKernels(
  matmul: ExpertMatmul,
  parts: readonly WeightPart[],
  context: LowerContext,
): Kernel[] {
  return [
    ...prepareOnce(matmul, context),
    ...groupOnce(matmul.node, context),
    ...parts.map((_, part) => matmulPairKernel(matmul, parts, part, context)),
    ...parts.map((_, part) => matmulTileKernel(matmul, parts, part, context)),
  ];
}

/** Prepares activations, unless a matmul before (as gate before up) has prepared the same ones. */
function prepareOnce({ node, matrix }: ExpertMatmul, context: LowerContext): Kernel[] {
  const { x, out } = node;
  const cols = matrix.shape[1]!;
  const { activation } = matrix.dtype;
  const form = `records of ${cols}`;
  if (isRounded(context.rounded, { value: x, activation, minRows: 1, form })) return [];
  const { exchange, batch, packedDots } = context;
  const { teams } = context.shapeFor(matrix.shape[0]!, cols, matrix.dtype.name);
  const kernel = prepareKernel({ x: { ...x, cols } }, matrix, {
    ...{ exchange, batch, packedDots },
    size: teams * TEAM,
    rows: out.rows,
    minRows: 1,
    maxRows: Infinity,
    into: "rounded",
  });
  // A row has the activations of all slots, or those that they share.
  return [{ ...kernel, grid: (tokens) => [(tokens * x.cols) / cols, 1, 1] }];
}

/** Groups the pairs of a batch by expert, unless a matmul before has the same routes. */
function groupOnce(node: NodeOf<"matmul_id">, context: LowerContext): Kernel[] {
  const { routes, weight } = node;
  const experts = weight.shape[0]!;
  const { tiles } = context;
  if (tiles.routes === routes && tiles.experts === experts) return [];
  Object.assign(tiles, { routes, experts });
  return [groupPairsKernel(node, tilesOf(context).at(-1)!, fewTokens(node) + 1)];
}
