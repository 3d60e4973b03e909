// Lowers groups (fuse.ts) to kernels. Single nodes are lowered by ops/table.ts.

import type { GraphNode } from "../../graph/graph.ts";
import type { Group } from "./fuse.ts";
import { fusedMatmulKernels } from "./ops/matmul.ts";
import type { LowerContext, Rounded } from "./ops/op.ts";
import { lowerNode } from "./ops/table.ts";
import { attentionRopedKernel, hasRoped } from "./wgsl/attention-roped.ts";
import type { Kernel } from "./wgsl/kernel.ts";
import { MATVEC_TOKENS } from "./wgsl/matvec.ts";

/** The kernels of a group, in order: fused ones for small batches, those of its nodes for others. */
export function lowerGroup(group: Group, context: LowerContext): Kernel[] {
  const { attention, nodes, fused } = group;
  if (attention && context.attentionSize > 0 && hasRoped(attention, context.kv)) {
    return lowerAttention(group, context);
  }
  const fusedKernels = fused.flatMap((matmul) => fusedMatmulKernels(matmul, context));
  const most = fusedKernels.length > 0 ? MATVEC_TOKENS : 0;
  // The fused matmul of a group with attention is of its last nodes; the nodes of attention are lowered separately.
  const before = attention ? lowerApart(attentionNodes(group), 0, context) : [];
  const after = attention ? nodes.slice(ATTENTION_NODES) : nodes;
  return [...before, ...fusedKernels, ...lowerApart(after, most, context)];
}

/** The number of nodes of RopedAttention, which come first in their group. */
const ATTENTION_NODES = 4;

function attentionNodes({ nodes }: Group): readonly GraphNode[] {
  return nodes.slice(0, ATTENTION_NODES);
}

/** Attention of one token as a fused op; a matmul that follows merges the parts of the context. */
function lowerAttention(group: Group, context: LowerContext): Kernel[] {
  const { kv, batch, exchange, attentionSize, split } = context;
  const attention = group.attention!;
  const parts = group.fused.length > 0 ? split : undefined;
  const merge = attention.attention;
  const several = group.fused.flatMap((matmul) => fusedMatmulKernels(matmul, context));
  return [
    attentionRopedKernel(attention, kv, batch, exchange, attentionSize, parts),
    ...group.fused.flatMap((matmul) => fusedMatmulKernels({ ...matmul, merge }, context)),
    ...lowerApart(attentionNodes(group), 1, context),
    ...several.map((kernel) => ({ ...kernel, minRows: 2 })),
    ...lowerApart(
      group.nodes.slice(ATTENTION_NODES),
      several.length > 0 ? MATVEC_TOKENS : 0,
      context,
    ),
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
