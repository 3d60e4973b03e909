// From a graph's nodes to kernels: one line for each op. What the GPU cannot compute is refused here with its reason, before
// anything is allocated.

import type { GraphNode, NodeOf, OpKind, Value } from "../../graph/graph.ts";
import type { StepLayout } from "./step-area.ts";
import { unpackOf } from "./unpack/table.ts";
import type { WeightPart } from "./weight-layout.ts";
import { attentionKernel } from "./wgsl/attention.ts";
import {
  activateKernel,
  addKernel,
  gateKernel,
  mulKernel,
  scaleKernel,
  selectKernel,
  softcapKernel,
} from "./wgsl/elementwise.ts";
import { embedKernel } from "./wgsl/embed.ts";
import type { Kernel } from "./wgsl/kernel.ts";
import type { KvFormat } from "./wgsl/kv-format.ts";
import { kvWriteKernel } from "./wgsl/kv-write.ts";
import { matmulKernel } from "./wgsl/matmul.ts";
import { matvecKernel } from "./wgsl/matvec.ts";
import { matvecBlocksKernel, multipliesChunks } from "./wgsl/matvec-blocks.ts";
import { layerNormKernel, rmsNormKernel, softmaxKernel } from "./wgsl/norms.ts";
import { ropeKernel } from "./wgsl/rope.ts";
import { roundKernel, roundsActivations } from "./wgsl/round-activations.ts";

/** What kernels are written for. */
export interface LowerContext {
  readonly parts: ReadonlyMap<string, readonly WeightPart[]>;
  readonly step: StepLayout;
  readonly kv: KvFormat;
  /** What the kernels of the nodes until now leave in the buffer of rounded activations. */
  readonly rounded: { value?: Value; activation?: string };
}

type Lower<K extends OpKind> = (node: NodeOf<K>, context: LowerContext) => Kernel[];

const lowerings: { readonly [K in OpKind]: Lower<K> } = {
  embed: (node, { parts, step }) => {
    const own = parts.get(node.table.name)!;
    return own.map((_, part) => embedKernel(node, own, part, step));
  },
  rms_norm: (node) => [rmsNormKernel(node)],
  layer_norm: (node) => [layerNormKernel(node)],
  matmul: (node, { parts, rounded }) => {
    const own = parts.get(node.weight.name)!;
    const matvec = multipliesChunks(node.weight) ? matvecBlocksKernel : matvecKernel;
    return [
      ...roundOnce(node, rounded),
      ...own.flatMap((_, part) => [matvec(node, own, part), matmulKernel(node, own, part)]),
    ];
  },
  rope: (node, { step }) => [ropeKernel(node, step)],
  kv_write: (node, { kv, step }) => [kvWriteKernel(node, kv, step)],
  attention: (node, { kv, step }) => [attentionKernel(node, kv, step)],
  gate: (node) => [gateKernel(node)],
  activate: (node) => [activateKernel(node)],
  add: (node) => [addKernel(node)],
  mul: (node) => [mulKernel(node)],
  scale: (node) => [scaleKernel(node)],
  softcap: (node) => [softcapKernel(node)],
  softmax: (node) => [softmaxKernel(node)],
  select: (node, { step }) => [selectKernel(node, step)],
};

/** Products of the same activations (q, k and v; gate and up) share the rounding of the first. */
function roundOnce({ x, weight }: NodeOf<"matmul">, rounded: LowerContext["rounded"]): Kernel[] {
  const { activation } = weight.dtype;
  if (!roundsActivations(weight)) return [];
  if (rounded.value === x && rounded.activation === activation) return [];
  rounded.value = x;
  rounded.activation = activation;
  return [roundKernel(x, weight)];
}

/** The kernels that compute a node, in order; nodes must come in the graph's order. */
export function lowerNode(node: GraphNode, context: LowerContext): Kernel[] {
  return (lowerings[node.op] as Lower<OpKind>)(node as NodeOf<OpKind>, context);
}

type Check<K extends OpKind> = (node: NodeOf<K>) => true | string;

/** Ops that have conditions. */
const checks: { readonly [K in OpKind]?: Check<K> } = {
  embed: ({ table }) => readable(table.dtype),
  matmul: ({ weight }) => readable(weight.dtype),
  rope: ({ headDim }) => headDim % 2 === 0 || `heads of ${headDim} values cannot be paired`,
  attention: ({ headDim }) => {
    if (headDim % 4 !== 0) return `heads of ${headDim} values; they must be a multiple of 4`;
    return headDim <= MOST_HEAD_VALUES || `heads of ${headDim} values; at most ${MOST_HEAD_VALUES}`;
  },
};

/** What fits the workgroup memory that every device has. */
const MOST_HEAD_VALUES = 2048;

export function supportsNode(node: GraphNode): true | string {
  if (!(node.op in lowerings)) return `the GPU has no op "${node.op}"`;
  const check = checks[node.op] as Check<OpKind> | undefined;
  return check?.(node as NodeOf<OpKind>) ?? true;
}

function readable(dtype: NodeOf<"embed">["table"]["dtype"]): true | string {
  return unpackOf(dtype) ? true : `the GPU does not read ${dtype.name} weights`;
}
