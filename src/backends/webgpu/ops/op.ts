// The interface of an op on the GPU: whether a node is supported, and its kernels (../wgsl/), in order. table.ts lists the ops;
// a missing part is a type error there. Fused ops are lowered by ../lower.ts.

import type { NodeOf, OpKind, Value } from "../../../graph/graph.ts";
import type { WeightLayout } from "../weight-layout.ts";
import type { AttentionSplit } from "../wgsl/attention-split.ts";
import type { Inlined } from "../wgsl/inlined.ts";
import type { Kernel } from "../wgsl/kernel.ts";
import type { KvFormats } from "../wgsl/kv-format.ts";
import type { MatmulContext } from "../wgsl/matmul-gemv.ts";
import type { Matrices } from "../wgsl/matrix-shapes.ts";

export interface GpuOp<K extends OpKind> {
  /** true, or the reason why not. */
  readonly supports: (node: NodeOf<K>) => true | string;
  readonly lower: (node: NodeOf<K>, context: LowerContext) => Kernel[];
  /** Its kernel with others in it, for ops that ../fuse-inlined.ts lists. */
  readonly inline?: (node: NodeOf<K>, inlined: Inlined, context: LowerContext) => Kernel;
  /** Storage buffers that its kernel binds. Optional: no more than the 8 that every device allows. */
  readonly buffers?: (node: NodeOf<K>) => number;
}

/** The context of a node's lowering. */
export interface LowerContext extends MatmulContext {
  readonly weights: WeightLayout;
  readonly kv: KvFormats;
  readonly split: AttentionSplit;
  /** Workgroup memory. */
  readonly workgroupBytes: number;
  /** Storage buffers that a shader may bind. */
  readonly storageBuffers: number;
  /** Lanes of a workgroup that computes attention; 0: position by position. */
  readonly attentionSize: number;
  readonly promptAttentionSize: number;
  /** Attention of many tokens is on matrix units, where there are any. */
  readonly matrixAttention: boolean;
  /** The use of matrix units; undefined: there are none. */
  readonly matrices: Matrices | undefined;
  /** Rows of activations that half floats cannot hold stay as they are. */
  readonly wide: boolean;
  /** Contents of the buffer of rounded activations after the nodes so far. */
  readonly rounded: Rounded;
  /** Contents of the buffer of tiles after them. */
  readonly tiles: Tiles;
  /** Norms that experts compute as they prepare their activations, by the norms' results. */
  readonly normed: Map<Value, NodeOf<"rms_norm">>;
  /** Whether two values lie in the same buffer. Default: none do. */
  readonly sharesSlot?: (one: Value, other: Value) => boolean;
  /** Whether the buffer of rounded activations has room for the rows of all pairs of experts, in half floats. */
  readonly hasRowsFor: (node: NodeOf<"matmul_id">) => boolean;
  /** The number of slots for the experts that a value names, if not all are in GPU memory. Default: all are. */
  readonly slotsOf?: (routes: Value) => number | undefined;
}

export interface Rounded {
  value?: Value | undefined;
  activation?: string | undefined;
  /** The least rows of batches that have it. */
  minRows?: number | undefined;
  /** The format in which it is stored: "floats", "halves" or "records of 768" columns. */
  form?: string | undefined;
  /** In batches for which experts are on matrix units, rows of their pairs are there instead. */
  gathered?: Gathered | undefined;
}

/** Rows of the pairs of these routes, of a token's activations or of a pair's. */
export interface Gathered {
  readonly x: Value;
  readonly routes: Value;
  readonly activation: string;
}

/** The pairs of these routes (wgsl/group-pairs.ts). */
export interface Tiles {
  routes?: Value | undefined;
  experts?: number | undefined;
  /** There are tiles of pairs; and rows for matrix units, in batches for these. */
  isTuned?: boolean | undefined;
  hasRows?: boolean | undefined;
}

/** An op with one kernel that supports every node. */
export function always<K extends OpKind>(
  kernel: (node: NodeOf<K>, context: LowerContext) => Kernel,
): GpuOp<K> {
  return { supports: () => true, lower: (node, context) => [kernel(node, context)] };
}
