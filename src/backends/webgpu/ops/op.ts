// What an op of the graph is on the GPU: whether a node can be computed here, and the kernels (../wgsl/) that do it, in order.
// table.ts lists the ops; a part that is missing is a type error there. What fused ops become is ../lower.ts.

import type { NodeOf, OpKind, Value } from "../../../graph/graph.ts";
import type { WeightLayout } from "../weight-layout.ts";
import type { Kernel } from "../wgsl/kernel.ts";
import type { KvFormat } from "../wgsl/kv-format.ts";
import type { MatmulContext } from "../wgsl/matmul-few.ts";
import type { Matrices } from "../wgsl/matmul-matrices.ts";

export interface GpuOp<K extends OpKind> {
  /** Otherwise the reason, for people. */
  readonly supports: (node: NodeOf<K>) => true | string;
  readonly lower: (node: NodeOf<K>, context: LowerContext) => Kernel[];
}

/** What kernels are written for. */
export interface LowerContext extends MatmulContext {
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

export interface Rounded {
  value?: Value | undefined;
  activation?: string | undefined;
  /** In batches of so many rows and more. */
  minRows?: number | undefined;
  /** As half floats. */
  halves?: boolean | undefined;
}

/** An op without conditions, by its one kernel. */
export function always<K extends OpKind>(
  kernel: (node: NodeOf<K>, context: LowerContext) => Kernel,
): GpuOp<K> {
  return { supports: () => true, lower: (node, context) => [kernel(node, context)] };
}
