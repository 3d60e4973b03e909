// The interface of lowering a node to exact kernels: its context, and the entry of an op (table.ts lists them).

import type { KvPair } from "../../../dtypes/kv-types.ts";
import type { Graph, NodeOf, OpKind } from "../../../graph/graph.ts";
import type { Arithmetic } from "../../../kernels/arithmetic.ts";
import type { BatchLayout } from "../batch-area.ts";
import type { Rounded } from "../ops/op.ts";
import type { WeightLayout } from "../weight-layout.ts";
import type { Kernel } from "../wgsl/kernel.ts";
import type { KvFormats } from "../wgsl/kv-format.ts";
import type { Roundings } from "./arithmetic.ts";

export interface ExactContext {
  readonly arithmetic: Roundings;
  /** Lanes of the vectors of a CPU kernel. */
  lanes(kernel: string): number;
  readonly weights: WeightLayout;
  readonly batch: BatchLayout;
  /** The cache's types, and how they lie. */
  readonly kvTypes: KvPair;
  readonly kv: KvFormats;
  /** Positions of a context: the length of a row of scores. */
  readonly context: number;
  /** WGSL has dot4I8Packed. */
  readonly packedDots: boolean;
  /** Rows of activations that half floats cannot hold stay as they are. */
  readonly wide: boolean;
  /** Contents of the buffer of rounded activations after the kernels of the nodes so far. */
  readonly rounded: Rounded;
}

export type ExactLower<K extends OpKind> = (node: NodeOf<K>, context: ExactContext) => Kernel[];

export interface ExactOp<K extends OpKind> {
  /** Otherwise the reason, for people. */
  readonly supports: (node: NodeOf<K>) => true | string;
  readonly lower: ExactLower<K>;
}

/**
 * Which lanes the CPU's kernels have: one choice for all calls of a kernel, so that all numbers of values of the graph are asked
 * about at once.
 */
export function lanesIn(
  graph: Graph,
  kType: string,
  arithmetic: Arithmetic,
): (kernel: string) => number {
  const counts = new Map<string, number[]>();
  const add = (kernel: string, ...values: readonly number[]): void => {
    counts.set(kernel, [...(counts.get(kernel) ?? []), ...values]);
  };
  for (const node of graph.nodes) {
    if (node.op === "rms_norm") add("rms_norm", node.weight.shape[0]!);
    if (node.op === "layer_norm")
      add(node.bias ? "layer_norm_bias" : "layer_norm", node.weight.shape[0]!);
    if (node.op === "softmax") add("softmax", node.x.cols);
    if (node.op !== "attention") continue;
    for (const kernel of ["softmax", `attn_scores_${kType}`]) {
      add(kernel, node.headDim, node.vHeadDim);
    }
  }
  return (kernel) => arithmetic.lanes(kernel, counts.get(kernel) ?? []);
}
