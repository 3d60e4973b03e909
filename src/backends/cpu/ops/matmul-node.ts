// The parts that matmul-lower.ts (the instruction of a matmul) and matmul-activations.ts (its activations) share: the node,
// the compiler as they see it, and the chosen variants.

import type { GraphNode, NodeOf } from "../../../graph/graph.ts";
import type { MatmulChoice } from "../../../kernels/matmul-variants.ts";
import type { CompileOptions } from "../compile-options.ts";
import type { ChoiceTable } from "./matmul-data.ts";
import type { NodeCompiler } from "./op.ts";

/** The compiler, as the lowering of a matmul sees it. */
export interface MatmulCompiler extends NodeCompiler {
  readonly options: CompileOptions;
  /** The most rows of a value. */
  readonly rows: number;
  explain(line: string): void;
}

/** A choice, and the address of its table for all threads: i32 [rows + 1]. */
export interface Chosen {
  readonly choice: MatmulChoice;
  readonly table: ChoiceTable;
}

export type MatmulNode = NodeOf<"matmul"> | NodeOf<"matmul_id">;

export function isMatmul(node: GraphNode): node is MatmulNode {
  return node.op === "matmul" || node.op === "matmul_id";
}

/** Columns of the matrix, or of each expert's. */
export function colsOf({ weight }: MatmulNode): number {
  return weight.shape.at(-1)!;
}
