// The table of the GPU's ops: one line for each. A new op is a kernel in ../wgsl/ and a line here, or a file beside this one
// where it has conditions or several kernels.

import type { GraphNode, NodeOf, OpKind } from "../../../graph/graph.ts";
import type { InliningNode } from "../fuse.ts";
import { adaptInPlace, adaptKernel, gatherKernel } from "../wgsl/adapt.ts";
import {
  activateKernel,
  addKernel,
  addWeightKernel,
  clampKernel,
  concatKernel,
  gateKernel,
  mulKernel,
  mulWeightKernel,
  scaleKernel,
  selectKernel,
  sliceKernel,
  softcapKernel,
  temperatureKernel,
  xieluKernel,
} from "../wgsl/elementwise.ts";
import { combineKernel } from "../wgsl/experts.ts";
import { headNormsKernel, type InlinedNorm } from "../wgsl/head-norms.ts";
import { inlinedGateKernel } from "../wgsl/inlined-gate.ts";
import type { Kernel } from "../wgsl/kernel.ts";
import { layerNormKernel, rmsNormKernel, softmaxKernel } from "../wgsl/norms.ts";
import { attention, kvWrite, rope } from "./attention.ts";
import { embed } from "./embed.ts";
import { matmulId, route } from "./experts.ts";
import { matmul } from "./matmul.ts";
import { always, type GpuOp, type LowerContext } from "./op.ts";
import { deltaNet, ssmScan, wkv } from "./scan.ts";
import { shortConv } from "./short-conv.ts";
import { indexScores, sparseAttention, topK } from "./sparse.ts";

const ops: { readonly [K in OpKind]: GpuOp<K> } = {
  embed,
  rms_norm: {
    ...always(rmsNormKernel),
    inline: (node, inlined) => headNormsKernel([{ node, inlined }]),
  },
  layer_norm: always(layerNormKernel),
  matmul,
  route,
  matmul_id: matmulId,
  combine: always((node) => combineKernel(node)),
  rope,
  kv_write: kvWrite,
  attention,
  index_scores: indexScores,
  top_k: topK,
  sparse_attention: sparseAttention,
  short_conv: shortConv,
  ssm_scan: ssmScan,
  delta_net: deltaNet,
  wkv,
  slice: always(sliceKernel),
  concat: always(concatKernel),
  gate: { ...always(gateKernel), inline: inlinedGateKernel },
  activate: always(activateKernel),
  add: always(addKernel),
  mul: always(mulKernel),
  scale: always(scaleKernel),
  mul_weight: always(mulWeightKernel),
  clamp: always(clampKernel),
  xielu: always(xieluKernel),
  temperature: always((node, { batch }) => temperatureKernel(node, batch)),
  add_weight: always(addWeightKernel),
  softcap: always(softcapKernel),
  softmax: always(softmaxKernel),
  select: always((node, { batch }) => selectKernel(node, batch)),
  gather: always((node, { batch }) => gatherKernel(node, batch)),
  adapt: always((node, { batch, sharesSlot }) =>
    sharesSlot?.(node.base, node.out) ? adaptInPlace(node, batch) : adaptKernel(node, batch),
  ),
};

/** Whether a node can be computed if shaders may bind `storageBuffers` storage buffers; otherwise the reason. */
export function supportsNode(node: GraphNode, storageBuffers: number): true | string {
  if (!Object.hasOwn(ops, node.op)) return `the GPU has no op "${node.op}"`;
  const { supports, buffers } = ops[node.op] as GpuOp<OpKind>;
  const needed = buffers?.(node as NodeOf<OpKind>) ?? 0;
  if (needed > storageBuffers) {
    return `the GPU's shaders bind at most ${storageBuffers} storage buffers, and "${node.op}" needs ${needed}`;
  }
  return supports(node as NodeOf<OpKind>);
}

/** The kernels that compute a node, in order; nodes must come in the graph's order. */
export function lowerNode(node: GraphNode, context: LowerContext): Kernel[] {
  return (ops[node.op] as GpuOp<OpKind>).lower(node as NodeOf<OpKind>, context);
}

/** The kernel of a node with others in it, or of two norms. */
export function lowerInlining(inlining: readonly InliningNode[], context: LowerContext): Kernel[] {
  const [{ node, inlined }] = inlining as [InliningNode];
  if (inlining.length > 1) return [headNormsKernel(inlining as readonly InlinedNorm[])];
  return [(ops[node.op] as GpuOp<OpKind>).inline!(node as NodeOf<OpKind>, inlined, context)];
}
