// Lowers groups (fuse.ts) to kernels. Single nodes are lowered by ops/table.ts.

import type { GraphNode } from "../../graph/graph.ts";
import type { Group } from "./fuse.ts";
import {
  fusedExpertKernels,
  fusesExperts,
  matrixExpertKernels,
  normedExpertKernels,
  roundedFor,
  upTo,
} from "./ops/experts.ts";
import { fusedMatmulKernels, fusedMatricesKernels } from "./ops/matmul.ts";
import type { LowerContext, Rounded } from "./ops/op.ts";
import { lowerInlining, lowerNode } from "./ops/table.ts";
import {
  attentionRopedKernel,
  attentionSeveralKernel,
  hasRoped,
  ropeWriteKernel,
} from "./wgsl/attention-roped.ts";
import { splitFor } from "./wgsl/attention-split.ts";
import { combineKernel } from "./wgsl/experts.ts";
import type { FusedExperts } from "./wgsl/experts-fused.ts";
import type { Kernel } from "./wgsl/kernel.ts";
import { headsRecord } from "./wgsl/record.ts";

/** The kernels of a group, in order: fused ones for small batches, those of its nodes for others. */
export function lowerGroup(group: Group, context: LowerContext): Kernel[] {
  const { attention, nodes, fused, experts, hosted, combined, inlining } = group;
  if (inlining) return lowerInlining(inlining, context);
  if (hosted) return lowerHosted(hosted, nodes, context);
  if (combined) return [combineKernel(combined.combine, combined.add)];
  if (experts) return lowerExperts(experts, nodes, context);
  const isRoped = attention && hasRoped(attention, context.kv, context.storageBuffers);
  if (isRoped && context.attentionSize > 0) {
    return lowerAttention(group, context);
  }
  const fusedKernels = fusedMatmulKernels(fused, context);
  // The fused matmul of a group with attention computes its last nodes; the nodes of attention are lowered separately.
  const before = attention ? lowerApart(attentionNodes(group), 0, context) : [];
  const after = attention ? nodes.slice(attentionNodes(group).length) : nodes;
  return [...before, ...fusedKernels, ...lowerMany(after, group, context)];
}

/** The nodes of a group that its fused matmuls compute, in batches of many tokens: on matrix units, or one by one. */
function lowerMany(
  nodes: readonly GraphNode[],
  { fused }: Group,
  context: LowerContext,
): readonly Kernel[] {
  const onMatrices = fusedMatricesKernels(fused, context);
  if (!onMatrices)
    return lowerApart(nodes, fused.length > 0 ? context.smallBatch.most : 0, context);
  forget(context.rounded);
  return onMatrices;
}

/** The nodes of RopedAttention, which come first in their group. */
function attentionNodes({ nodes, attention }: Group): readonly GraphNode[] {
  return nodes.slice(0, nodes.indexOf(attention!.attention) + 1);
}

/** Attention of few tokens as a fused op. */
function lowerAttention(group: Group, context: LowerContext): Kernel[] {
  const { kv, batch, exchange, attentionSize: size } = context;
  const split = splitFor(context.split);
  const { most } = context.smallBatch;
  const attention = group.attention!;
  const { out, headDim } = attention.attention;
  const [output] = group.fused;
  const record = output && headsRecord(out, headDim, output.matmuls[0]!.weight);
  const fused = group.fused.map((matmul) => ({ ...matmul, record }));
  return [
    attentionRopedKernel(attention, kv, batch, exchange, size, split, record),
    ropeWriteKernel(attention, kv, batch, exchange),
    attentionSeveralKernel(attention, kv, batch, exchange, size, most, split),
    ...fusedMatmulKernels(fused, context),
    ...lowerApart([attention.attention], most, context),
    ...lowerMany(group.nodes.slice(attentionNodes(group).length), group, context),
  ];
}

/** A mixture of experts: fused for one token, node by node for several, but with one kernel for its norm and its activations. */
function lowerExperts(
  experts: FusedExperts,
  nodes: readonly GraphNode[],
  context: LowerContext,
): Kernel[] {
  if (!fusesExperts(experts, context)) return lowerApart(nodes, 0, context);
  const single = fusedExpertKernels(experts, context);
  const { router, route, gate, down, combine, add } = experts;
  const { most } = context.smallBatch;
  const kernels = [
    ...fusedMatmulKernels([router], context),
    ...normedExpertKernels(experts, context),
    ...fromRows(most + 1, lowerNode(router.matmuls[0]!, context)),
    ...likeSingle(lowerNode(route, context)),
    single.gate,
  ];
  // It is there for several; one token does not read it.
  Object.assign(context.rounded, roundedFor(gate, context), { minRows: 1, gathered: undefined });
  const fused = matrixExpertKernels(experts, context);
  for (const node of nodes.slice(nodes.indexOf(route) + 1, nodes.indexOf(combine))) {
    const own = lowerNode(node, context);
    const [few, many] = [own.filter(isFor(most)), own.filter((kernel) => !isFor(most)(kernel))];
    const isWanted = node === down && !single.hasRecord;
    const prepares = isWanted ? few.filter(({ preparedBytes }) => preparedBytes) : [];
    const others = likeSingle(few.slice(prepares.length));
    kernels.push(
      ...(fused ? upTo(most, [...prepares, ...others]) : [...prepares, ...others, ...many]),
    );
  }
  forget(context.rounded);
  return [...kernels, ...(fused ?? []), ...likeSingle([combineKernel(combine, add)]), single.down];
}

/** The norm and the router of a mixture whose other nodes are computed one by one: with the bits that they have where all are fused. */
function lowerHosted(
  experts: FusedExperts,
  nodes: readonly GraphNode[],
  context: LowerContext,
): Kernel[] {
  if (!fusesExperts(experts, context)) return lowerApart(nodes, 0, context);
  const { router, norm } = experts;
  const { most } = context.smallBatch;
  context.normed.set(norm.out, norm);
  return [
    ...fusedMatmulKernels([router], context),
    ...fromRows(most + 1, normedExpertKernels(experts, context)),
    ...fromRows(most + 1, lowerNode(router.matmuls[0]!, context)),
  ];
}

/** For several tokens, each of which has the bits that a fused kernel gives a single one. */
function likeSingle(kernels: readonly Kernel[]): Kernel[] {
  return fromRows(2, kernels).map((kernel) => ({ ...kernel, sameBits: true }));
}

const isFor =
  (most: number) =>
  ({ minRows }: Kernel): boolean =>
    minRows <= most;

/** The kernels for batches of at least `least` rows, and no others. */
function fromRows(least: number, kernels: readonly Kernel[]): Kernel[] {
  return kernels
    .filter(({ maxRows }) => maxRows >= least)
    .map((kernel) => ({ ...kernel, minRows: Math.max(kernel.minRows, least) }));
}

/** Node by node, for batches of more rows than `most`. */
function lowerApart(nodes: readonly GraphNode[], most: number, context: LowerContext): Kernel[] {
  // The buffer of rounded activations is only filled by these kernels in large batches.
  if (most > 0) forget(context.rounded);
  const kernels = fromRows(
    most + 1,
    nodes.flatMap((node) => lowerNode(node, context)),
  );
  if (most > 0) forget(context.rounded);
  return kernels;
}

function forget(rounded: Rounded): void {
  const nothing = { value: undefined, activation: undefined, minRows: undefined };
  Object.assign(rounded, nothing, { gathered: undefined });
}
