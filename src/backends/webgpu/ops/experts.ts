// route and matmul_id on the GPU. A matmul over experts has kernels for few tokens and for many, where lanes can multiply the type of
// its weights (wgsl/matmul-experts.ts), and otherwise one for any number of tokens; of large batches, one on matrix units
// (wgsl/experts-matrices.ts), where there are any. All of them read activations that were prepared or rounded before, once for all
// matmuls that read them.

import type { NodeOf, Weight } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { matmulIdKernel } from "../wgsl/experts.ts";
import {
  expertDownKernel,
  expertGateKernel,
  type FusedExperts,
  slotRecord,
} from "../wgsl/experts-fused.ts";
import { type ExpertMatrices, expertMatricesKernel } from "../wgsl/experts-matrices.ts";
import { groupPairsKernel, groupRowsKernel } from "../wgsl/group-pairs.ts";
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
import { expertShapeFor, tokensOf } from "../wgsl/matrix-shapes.ts";
import { prepareKernel } from "../wgsl/prepare-activations.ts";
import { fitsHalves, roundsToHalves } from "../wgsl/round-activations.ts";
import { MOST_EXPERTS, routeKernel, routesWith } from "../wgsl/route.ts";
import { stageBytes } from "../wgsl/stage.ts";
import { SUBGROUP } from "../wgsl/subgroups.ts";
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
    const matrices = expertMatricesOf(node, context);
    const { most } = context.smallBatch;
    const grouped = groupOnce(node, context, tuned !== undefined);
    const few = tuned
      ? [...prepareOnce(tuned, context), ...grouped.few, ...tunedKernels(tuned, own, context)]
      : [
          ...roundOnce(node, 1, false, context, `floats${endOf(matrices, context)}`),
          ...own.map((_, part) => matmulIdKernel(node, own, part, slots)),
        ];
    if (!matrices) return few;
    const onMatrices = { ...matricesKernel(matrices, context), inHalves: true };
    return [...upTo(most, few), ...grouped.many, ...gatherOnce(node, context), onMatrices];
  },
};

/** The kernels for batches of at most `most` rows, and no others. */
export function upTo(most: number, kernels: readonly Kernel[]): Kernel[] {
  return kernels
    .filter(({ minRows }) => minRows <= most)
    .map((kernel) => ({ ...kernel, maxRows: Math.min(kernel.maxRows, most) }));
}

function tunedKernels(
  matmul: ExpertMatmul,
  parts: readonly WeightPart[],
  context: LowerContext,
): Kernel[] {
  return [
    ...parts.map((_, part) => matmulPairKernel(matmul, parts, part, context)),
    ...parts.map((_, part) => matmulTileKernel(matmul, parts, part, context)),
  ];
}

/** The matrix-unit shape for batches of more than `smallBatch.most` tokens; undefined: as smaller ones. */
function expertMatricesOf(
  node: NodeOf<"matmul_id">,
  context: LowerContext,
): ExpertMatrices | undefined {
  const matrix = asMatrix(node.weight);
  const { matrices, wide, workgroupBytes, weights } = context;
  const isWide = wide && roundsToHalves(matrix);
  if (!matrices || isWide || !fitsHalves(matrix)) return undefined;
  // Prepared activations lie in workgroup memory; parts of a weight would end within an expert.
  if (stageBytes(matrix) > workgroupBytes || !context.hasRowsFor(node)) return undefined;
  if (weights.parts.get(node.weight.name)!.length > 1) return undefined;
  const shape = expertShapeFor(matrix, matrices);
  return shape && { node, shape, slotCount: context.slotsOf?.(node.routes) };
}

const matricesKernel = (matmul: ExpertMatrices, { smallBatch, matrices }: LowerContext): Kernel =>
  expertMatricesKernel(matmul, smallBatch.most + 1, matrices!.calls);

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
  const { subgroups, width } = shapeOf(gateUp, context);
  return routesWith(route, subgroups * width);
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

/** The kernels of a mixture behind its routes in batches for matrix units; undefined: nodes are computed one by one. */
export function matrixExpertKernels(
  { gate, up, activation, down }: FusedExperts,
  context: LowerContext,
): Kernel[] | undefined {
  const [gateUp, ofDown] = [gate, down].map((node) => expertMatricesOf(node, context));
  if (!gateUp || !ofDown) return undefined;
  return [
    groupRows(gate, gateUp, context),
    gatherKernel(gate, context),
    matricesKernel({ ...gateUp, gated: { up, activation } }, context),
    gatherKernel(down, context),
    matricesKernel(ofDown, context),
  ];
}

/** Normalises the tokens of a mixture and prepares them for its experts; in large batches the router reads the norm itself. */
export function normedExpertKernels(
  { norm, gate }: FusedExperts,
  context: LowerContext,
): readonly Kernel[] {
  const { most } = context.smallBatch;
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

/** Contents of the buffer of rounded activations that this matmul's kernels leave. */
export function roundedFor(
  node: NodeOf<"matmul_id">,
  context: LowerContext,
): Omit<Required<Rounded>, "minRows" | "gathered"> {
  const { x, weight } = node;
  const end = endOf(expertMatricesOf(node, context), context);
  return {
    value: x,
    activation: weight.dtype.activation,
    form: `records of ${weight.shape[2]}${end}`,
  };
}

/** Larger batches have something else in the buffer, where they are on matrix units. */
function endOf(matrices: ExpertMatrices | undefined, { smallBatch }: LowerContext): string {
  return matrices ? ` up to ${smallBatch.most} tokens` : "";
}

function prepareOptions(matrix: Weight, context: LowerContext) {
  const { exchange, batch, packedDots } = context;
  const [rows, cols] = matrix.shape as [number, number];
  const { subgroups } = context.shapeFor(rows, cols, matrix.dtype.name);
  return { exchange, batch, packedDots, size: subgroups * SUBGROUP, into: "rounded" as const };
}

/** Prepares activations, unless a matmul before (as gate before up) has prepared the same ones. */
function prepareOnce({ node, matrix }: ExpertMatmul, context: LowerContext): Kernel[] {
  const { x, out } = node;
  const cols = matrix.shape[1]!;
  if (isRounded(context.rounded, { ...roundedFor(node, context), minRows: 1 })) return [];
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

/** Groups the pairs of a batch by expert, unless a matmul before has the same routes: for matrix units, and, where it `isTuned`, for others. */
function groupOnce(
  node: NodeOf<"matmul_id">,
  context: LowerContext,
  isTuned: boolean,
): { few: Kernel[]; many: Kernel[] } {
  const { routes, weight } = node;
  const experts = weight.shape[0]!;
  const { tiles, rounded } = context;
  const matrices = expertMatricesOf(node, context);
  const wanted = { routes, experts, isTuned, hasRows: matrices !== undefined };
  const isThere =
    tiles.routes === routes &&
    tiles.experts === experts &&
    tiles.isTuned === isTuned &&
    tiles.hasRows === wanted.hasRows;
  if (isThere || !(isTuned || matrices)) return { few: [], many: [] };
  Object.assign(tiles, wanted);
  rounded.gathered = undefined;
  const minRows = fewTokens(node) + 1;
  const few = groupPairsKernel(node, tilesOf(context).at(-1)!, { minRows, maxRows: Infinity });
  return {
    few: isTuned ? [few] : [],
    many: matrices ? [groupRows(node, matrices, context)] : [],
  };
}

function groupRows(
  node: NodeOf<"matmul_id">,
  { shape }: ExpertMatrices,
  { smallBatch }: LowerContext,
): Kernel {
  const minRows = smallBatch.most + 1;
  return groupRowsKernel(node, tokensOf(shape), { minRows, maxRows: Infinity });
}

/** Prepares the rows of all pairs for matrix units, unless a matmul before has prepared the same ones. */
function gatherOnce(node: NodeOf<"matmul_id">, context: LowerContext): Kernel[] {
  const { x, routes, weight } = node;
  const { activation } = weight.dtype;
  const { gathered } = context.rounded;
  const isSame = gathered?.x === x && gathered.routes === routes;
  if (isSame && gathered.activation === activation) return [];
  context.rounded.gathered = { x, routes, activation };
  return [gatherKernel(node, context)];
}

/** Slots that share activations have a row each; others have activations of their own. */
function gatherKernel(node: NodeOf<"matmul_id">, context: LowerContext): Kernel {
  const { x, routes, weight, out } = node;
  const cols = weight.shape[2]!;
  const matrix = asMatrix(weight);
  const apart = x.cols / cols;
  const kernel = prepareKernel({ x: { ...x, cols } }, matrix, {
    ...prepareOptions(matrix, context),
    ...{ rows: out.rows, minRows: context.smallBatch.most + 1, maxRows: Infinity },
    ...{ halves: true, pairs: routes.cols / 2 / apart },
  });
  return { ...kernel, grid: (tokens) => [tokens * apart, 1, 1] };
}
