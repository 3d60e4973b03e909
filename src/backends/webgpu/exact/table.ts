// The ops that the GPU computes exactly as the CPU does: one line for each. An op without a line is refused with a reason when
// a model is opened with `exact`.

import type { Graph, GraphNode, NodeOf, OpKind } from "../../../graph/graph.ts";
import {
  addKernel,
  addWeightKernel,
  clampKernel,
  concatKernel,
  mulKernel,
  mulWeightKernel,
  scaleKernel,
  selectKernel,
  sliceKernel,
} from "../wgsl/elementwise.ts";
import { embedKernel } from "../wgsl/embed.ts";
import type { Kernel } from "../wgsl/kernel.ts";
import { attention, kvWrite } from "./attention.ts";
import { activate, gate, gateReason, rope, softcap } from "./elementwise.ts";
import { embed, matmul } from "./matmul.ts";
import { layerNorm, rmsNorm, softmax } from "./norms.ts";
import type { ExactContext, ExactLower, ExactOp } from "./op.ts";
import { exactFormatOf } from "./weights.ts";

const always = <K extends OpKind>(lower: ExactLower<K>): ExactOp<K> => ({
  supports: () => true,
  lower,
});

/** The sizes that the CPU has kernels for: whole vectors of at least four values. */
const whole = <K extends OpKind>(
  cols: (node: NodeOf<K>) => number,
  lower: ExactLower<K>,
): ExactOp<K> => ({
  supports: (node) => cols(node) % 4 === 0 || `rows of ${cols(node)} values`,
  lower,
});

const ops: { readonly [K in OpKind]?: ExactOp<K> } = {
  embed: always((node, context) => {
    if (exactFormatOf(node.table.dtype)) return embed(node, context);
    const own = context.weights.parts.get(node.table.name)!;
    return own.map((_, part) => embedKernel(node, own, part, context.batch));
  }),
  rms_norm: whole(({ weight }) => weight.shape[0]!, rmsNorm),
  layer_norm: whole(({ weight }) => weight.shape[0]!, layerNorm),
  matmul,
  rope: whole(({ rope: { dims, layout } }) => (layout === "half" ? dims / 2 : dims), rope),
  kv_write: always(kvWrite),
  attention,
  gate: { supports: gateReason, lower: gate },
  activate: whole(({ x }) => x.cols, activate),
  add: always((node) => [addKernel(node)]),
  mul: always((node) => [mulKernel(node)]),
  scale: always((node) => [scaleKernel(node)]),
  mul_weight: always((node) => [mulWeightKernel(node)]),
  add_weight: always((node) => [addWeightKernel(node)]),
  clamp: always((node) => [clampKernel(node)]),
  slice: always((node) => [sliceKernel(node)]),
  concat: always((node) => [concatKernel(node)]),
  softcap: whole(({ x }) => x.cols, softcap),
  softmax: whole(({ x }) => x.cols, softmax),
  select: always((node, { batch }) => [selectKernel(node, batch)]),
};

/** Whether a node can be computed with the CPU's bits; otherwise the reason. */
export function supportsExactly(node: GraphNode): true | string {
  const op = Object.hasOwn(ops, node.op) ? (ops[node.op] as ExactOp<OpKind>) : undefined;
  const answer = op ? op.supports(node as NodeOf<OpKind>) : `the op "${node.op}"`;
  return answer === true ? true : `exact kernels lack ${answer}; use \`exact: false\``;
}

/** The kernels of each node, in the graph's order. */
export function lowerExactly(
  graph: Graph,
  context: ExactContext,
): { nodes: readonly GraphNode[]; kernels: Kernel[] }[] {
  return graph.nodes.map((node) => ({
    nodes: [node],
    kernels: (ops[node.op] as ExactOp<OpKind>).lower(node as NodeOf<OpKind>, context),
  }));
}
