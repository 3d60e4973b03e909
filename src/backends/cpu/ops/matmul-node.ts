// What both halves of lowering a matmul need: the node itself, the compiler that they ask, and the variants that were chosen for
// it. matmul-lower.ts makes the instruction, matmul-activations.ts what it reads.

import type { GraphNode, NodeOf } from "../../../graph/graph.ts";
import type { MatmulChoice } from "../../../kernels/matmul-variants.ts";
import type { CompileOptions } from "../compile-options.ts";
import type { ChoiceTable } from "./matmul-data.ts";
import type { NodeCompiler } from "./op.ts";

/** What lowering a matmul asks of the compiler. */
export interface MatmulCompiler extends NodeCompiler {
  readonly options: CompileOptions;
  /** Most rows that a value can have. */
  readonly rows: number;
  explain(line: string): void;
}

/** A choice, and where the table is that tells all threads of it: i32 [rows + 1]. */
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
