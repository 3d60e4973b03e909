// Lowers groups (fuse.ts) to kernels. Single nodes are lowered by ops/table.ts.

import type { GraphNode } from "../../graph/graph.ts";
import type { Group } from "./fuse.ts";
import { fusedMatmulKernels, fusedMatricesKernels } from "./ops/matmul.ts";
import type { LowerContext, Rounded } from "./ops/op.ts";
import { lowerNode } from "./ops/table.ts";
import {
  attentionRopedKernel,
  attentionSeveralKernel,
  hasRoped,
  ropeWriteKernel,
} from "./wgsl/attention-roped.ts";
import { splitFor } from "./wgsl/attention-split.ts";
import type { Kernel } from "./wgsl/kernel.ts";
import { headsRecord } from "./wgsl/record.ts";

/** The kernels of a group, in order: fused ones for small batches, those of its nodes for others. */
export function lowerGroup(group: Group, context: LowerContext): Kernel[] {
  const { attention, nodes, fused } = group;
  if (attention && context.attentionSize > 0 && hasRoped(attention, context.kv)) {
    return lowerAttention(group, context);
  }
  const fusedKernels = fusedMatmulKernels(fused, context);
  // The fused matmul of a group with attention is of its last nodes; the nodes of attention are lowered separately.
  const before = attention ? lowerApart(attentionNodes(group), 0, context) : [];
  const after = attention ? nodes.slice(ATTENTION_NODES) : nodes;
  return [...before, ...fusedKernels, ...lowerMany(after, group, context)];
}

/** The nodes of a group that its fused matmuls compute, in batches of many tokens: on matrix units, or one by one. */
function lowerMany(
  nodes: readonly GraphNode[],
  { fused }: Group,
  context: LowerContext,
): readonly Kernel[] {
  const onMatrices = fusedMatricesKernels(fused, context);
  if (!onMatrices) return lowerApart(nodes, fused.length > 0 ? context.several.most : 0, context);
  forget(context.rounded);
  return onMatrices;
}

/** The number of nodes of RopedAttention, which come first in their group. */
const ATTENTION_NODES = 4;

function attentionNodes({ nodes }: Group): readonly GraphNode[] {
  return nodes.slice(0, ATTENTION_NODES);
}

/** Attention of few tokens as a fused op. */
function lowerAttention(group: Group, context: LowerContext): Kernel[] {
  const { kv, batch, exchange, attentionSize: size } = context;
  const split = splitFor(context.split);
  const { most } = context.several;
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
    ...lowerMany(group.nodes.slice(ATTENTION_NODES), group, context),
  ];
}

/** Node by node, for batches of more rows than `most`. */
function lowerApart(nodes: readonly GraphNode[], most: number, context: LowerContext): Kernel[] {
  // The buffer of rounded activations is only filled by these kernels in large batches.
  if (most > 0) forget(context.rounded);
  const kernels = nodes
    .flatMap((node) => lowerNode(node, context))
    .filter(({ maxRows }) => maxRows > most)
    .map((kernel) => ({ ...kernel, minRows: Math.max(kernel.minRows, most + 1) }));
  if (most > 0) forget(context.rounded);
  return kernels;
}

function forget(rounded: Rounded): void {
  Object.assign(rounded, { value: undefined, activation: undefined, minRows: undefined });
}
