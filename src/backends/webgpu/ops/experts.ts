// route and matmul_id on the GPU. A matmul over experts has kernels for few tokens and for many, where lanes can multiply the type of
// its weights (wgsl/matmul-experts.ts), and otherwise one for any number of tokens. All of them read activations that were prepared or
// rounded before, once for all matmuls that read them.

import type { NodeOf, Weight } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { matmulIdKernel } from "../wgsl/experts.ts";
import {
  expertDownKernel,
  expertGateKernel,
  type FusedExperts,
  slotRecord,
} from "../wgsl/experts-fused.ts";
import { groupPairsKernel } from "../wgsl/group-pairs.ts";
import type { Kernel } from "../wgsl/kernel.ts";
import {
  asMatrix,
  type ExpertMatmul,
  expertMatmulOf,
  fewTokens,
  matmulPairKernel,
  matmulTileKernel,
  shapeOf,
  tilesOf,
} from "../wgsl/matmul-experts.ts";
import { prepareKernel } from "../wgsl/prepare-activations.ts";
import { roundsToHalves } from "../wgsl/round-activations.ts";
import { MOST_EXPERTS, routeKernel, routesWith } from "../wgsl/route.ts";
import { TEAM } from "../wgsl/teams.ts";
import { isRounded, roundOnce } from "./matmul.ts";
import type { GpuOp, LowerContext, Rounded } from "./op.ts";
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

/** The kernels of a mixture in batches of one token. */
interface SingleExperts {
  readonly gate: Kernel;
  readonly down: Kernel;
  /** Otherwise activations are prepared between them. */
  readonly hasRecord: boolean;
}

/** Whether there are kernels for a mixture; otherwise, its nodes are computed one by one. */
export function fusesExperts({ gate, route }: FusedExperts, context: LowerContext): boolean {
  const gateUp = expertMatmulOf(gate, context.workgroupBytes, undefined)!;
  const { teams, width } = shapeOf(gateUp, context);
  return routesWith(route, teams * width);
}

export function fusedExpertKernels(experts: FusedExperts, context: LowerContext): SingleExperts {
  const { gate, down } = experts;
  const [gateUp, ofDown] = [gate, down].map((node) => {
    return expertMatmulOf(node, context.workgroupBytes, undefined)!;
  }) as [ExpertMatmul, ExpertMatmul];
  const { stacks, parts } = context.weights;
  const hasNarrow = (part: WeightPart | undefined): boolean => part!.narrow !== undefined;
  const record = slotRecord(experts, gateUp, context)?.row;
  return {
    gate: expertGateKernel(experts, gateUp, hasNarrow(stacks.get(gate.weight.name)), context),
    down: expertDownKernel(
      experts,
      ofDown,
      hasNarrow(parts.get(down.weight.name)![0]),
      record,
      context,
    ),
    hasRecord: record !== undefined,
  };
}

/** Normalises the tokens of a mixture and prepares them for its experts; in large batches the router reads the norm itself. */
export function normedExpertKernels(
  { norm, gate }: FusedExperts,
  context: LowerContext,
): readonly Kernel[] {
  const { most } = context.several;
  const matrix = asMatrix(gate.weight);
  const options = { ...prepareOptions(matrix, context), rows: gate.out.rows };
  const source = { x: norm.x, norm };
  return [
    prepareKernel(source, matrix, { ...options, minRows: 2, maxRows: most }),
    prepareKernel({ ...source, keep: norm.out }, matrix, {
      ...options,
      ...{ minRows: most + 1, maxRows: Infinity },
    }),
  ];
}

/** What is in the buffer of rounded activations when those of this matmul are. */
export function roundedFor({ x, weight }: NodeOf<"matmul_id">): Omit<Required<Rounded>, "minRows"> {
  return {
    value: x,
    activation: weight.dtype.activation,
    form: `records of ${weight.shape[2]}`,
  };
}

function prepareOptions(matrix: Weight, context: LowerContext) {
  const { exchange, batch, packedDots } = context;
  const [rows, cols] = matrix.shape as [number, number];
  const { teams } = context.shapeFor(rows, cols, matrix.dtype.name);
  return { exchange, batch, packedDots, size: teams * TEAM, into: "rounded" as const };
}

/** Prepares activations, unless a matmul before (as gate before up) has prepared the same ones. */
function prepareOnce({ node, matrix }: ExpertMatmul, context: LowerContext): Kernel[] {
  const { x, out } = node;
  const cols = matrix.shape[1]!;
  if (isRounded(context.rounded, { ...roundedFor(node), minRows: 1 })) return [];
  const options = {
    ...prepareOptions(matrix, context),
    ...{ rows: out.rows, minRows: 1, maxRows: Infinity },
  };
  const norm = context.normed.get(x);
  if (norm) return [prepareKernel({ x: norm.x, norm }, matrix, options)];
  const kernel = prepareKernel({ x: { ...x, cols } }, matrix, options);
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
