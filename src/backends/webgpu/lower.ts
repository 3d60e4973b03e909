// From a graph's nodes to kernels: one line for each op; and from groups of nodes that are computed together (fuse.ts) to
// theirs. What the GPU cannot compute is refused here with its reason, before anything is allocated.

import type { GraphNode, NodeOf, OpKind, Value } from "../../graph/graph.ts";
import type { Group } from "./fuse.ts";
import { unpackOf } from "./unpack/table.ts";
import type { WeightLayout } from "./weight-layout.ts";
import { attentionKernel } from "./wgsl/attention.ts";
import { attentionRopedKernel, hasRoped } from "./wgsl/attention-roped.ts";
import { attentionTeamsKernel, hasTeams } from "./wgsl/attention-teams.ts";
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
import { hasMatrices, type Matrices, matmulMatricesKernels } from "./wgsl/matmul-matrices.ts";
import { MATVEC_TOKENS, matvecKernel } from "./wgsl/matvec.ts";
import { layerNormKernel, rmsNormKernel, softmaxKernel } from "./wgsl/norms.ts";
import { laneProductOf, type Product, type ProductContext, productKernel } from "./wgsl/product.ts";
import { ropeKernel } from "./wgsl/rope.ts";
import { fitsHalves, roundKernel, roundsActivations } from "./wgsl/round-activations.ts";

/** What kernels are written for. */
export interface LowerContext extends ProductContext {
  readonly weights: WeightLayout;
  readonly kv: KvFormat;
  /** Of a workgroup. */
  readonly workgroupBytes: number;
  /** Lanes of a workgroup that computes attention; 0: position by position. */
  readonly attentionSize: number;
  readonly promptAttentionSize: number;
  /** How matrix units are used; undefined: there are none. */
  readonly matrices: Matrices | undefined;
  /** What the kernels of the nodes until now leave in the buffer of rounded activations. */
  readonly rounded: Rounded;
}

interface Rounded {
  value?: Value | undefined;
  activation?: string | undefined;
  /** In steps of so many rows and more. */
  minRows?: number | undefined;
  /** As half floats. */
  halves?: boolean | undefined;
}

type Lower<K extends OpKind> = (node: NodeOf<K>, context: LowerContext) => Kernel[];

const lowerings: { readonly [K in OpKind]: Lower<K> } = {
  embed: (node, { weights, step }) => {
    const own = weights.parts.get(node.table.name)!;
    return own.map((_, part) => embedKernel(node, own, part, step));
  },
  rms_norm: (node) => [rmsNormKernel(node)],
  layer_norm: (node) => [layerNormKernel(node)],
  matmul: (node, context) => {
    const { weight, x } = node;
    const own = context.weights.parts.get(weight.name)!;
    const isTuned = laneProductOf(weight, context.workgroupBytes) !== undefined;
    const { matrices } = context;
    const onMatrices = matrices && hasMatrices(node, matrices) && fitsHalves(weight);
    const few = isTuned
      ? productKernels({ x, matmuls: [node] }, context)
      : own.map((_, part) => matvecKernel(node, own, part));
    const many = own.flatMap((_, part) =>
      onMatrices
        ? matmulMatricesKernels(node, own, part, matrices)
        : [matmulKernel(node, own, part)],
    );
    const { rounded } = context;
    if (!onMatrices) {
      return [...roundOnce(node, isTuned ? MATVEC_TOKENS + 1 : 1, false, rounded), ...few, ...many];
    }
    const once = isTuned ? [] : roundOnce(node, 1, false, rounded);
    return [...once, ...few, ...roundOnce(node, MATVEC_TOKENS + 1, true, rounded), ...many];
  },
  rope: (node, { step }) => [ropeKernel(node, step)],
  kv_write: (node, { kv, step }) => [kvWriteKernel(node, kv, step)],
  attention: (node, { kv, step, exchange, promptAttentionSize: size }) => [
    size > 0 && hasTeams(node, kv)
      ? attentionTeamsKernel(node, kv, step, exchange, size)
      : attentionKernel(node, kv, step),
  ],
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
function roundOnce(
  { x, weight }: NodeOf<"matmul">,
  minRows: number,
  halves: boolean,
  rounded: LowerContext["rounded"],
): Kernel[] {
  const { activation } = weight.dtype;
  if (!roundsActivations(weight)) return [];
  const isThere = rounded.value === x && rounded.activation === activation;
  if (isThere && rounded.minRows! <= minRows && rounded.halves === halves) return [];
  Object.assign(rounded, { value: x, activation, minRows, halves });
  return [{ ...roundKernel(x, weight, halves), minRows }];
}

function productKernels(product: Product, context: LowerContext): Kernel[] {
  const { weights } = context;
  const { name } = product.matmuls[0]!.weight;
  const own = product.matmuls.length > 1 ? [weights.stacks.get(name)!] : weights.parts.get(name)!;
  return own.map((part, number) => productKernel(product, part, number, context));
}

/** The kernels of a group, in order: for small steps those that compute it at once, for others its nodes' own. */
export function lowerGroup(group: Group, context: LowerContext): Kernel[] {
  const { attention, nodes, products } = group;
  if (attention && context.attentionSize > 0 && hasRoped(attention, context.kv)) {
    return lowerAttention(group, context);
  }
  const together = products.flatMap((product) => productKernels(product, context));
  const most = together.length > 0 ? MATVEC_TOKENS : 0;
  // Products in a group with attention are those of its last nodes: what comes before them is computed apart.
  const before = attention ? lowerApart(attentionNodes(group), 0, context) : [];
  const after = attention ? nodes.slice(ATTENTION_NODES) : nodes;
  return [...before, ...together, ...lowerApart(after, most, context)];
}

/** Nodes of RopedAttention, which come first in their group. */
const ATTENTION_NODES = 4;

function attentionNodes({ nodes }: Group): readonly GraphNode[] {
  return nodes.slice(0, ATTENTION_NODES);
}

/** One token: at once, and where a product follows it merges the parts of the context. */
function lowerAttention(group: Group, context: LowerContext): Kernel[] {
  const { kv, step, exchange, attentionSize, split } = context;
  const attention = group.attention!;
  const parts = group.products.length > 0 ? split : undefined;
  const merge = attention.attention;
  const several = group.products.flatMap((product) => productKernels(product, context));
  return [
    attentionRopedKernel(attention, kv, step, exchange, attentionSize, parts),
    ...group.products.flatMap((product) => productKernels({ ...product, merge }, context)),
    ...lowerApart(attentionNodes(group), 1, context),
    ...several.map((kernel) => ({ ...kernel, minRows: 2 })),
    ...lowerApart(
      group.nodes.slice(ATTENTION_NODES),
      several.length > 0 ? MATVEC_TOKENS : 0,
      context,
    ),
  ];
}

/** Node by node, in steps of more rows than `most`. */
function lowerApart(nodes: readonly GraphNode[], most: number, context: LowerContext): Kernel[] {
  // What these kernels leave in the buffer of rounded activations is only there after large steps.
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
