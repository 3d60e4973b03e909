// What an op of the graph is on the CPU backend. A file of this folder says all of it: what a node becomes (lower), what
// memory the instruction touches (access), which kernels it calls and how wide they may be (kernels, code), and what a chunk
// of its work is (execute). table.ts lists them; a part that is missing is a type error there.
//
// An instruction is plain data: it is sent to every compute thread once. Addresses are bytes. One op may become one of
// several instructions (a matmul), and several ops the same one (everything elementwise).

import type { GraphNode, NodeOf, OpKind, Rope, Rows, Value, Weight } from "../../../graph/graph.ts";
import type { Kernel } from "../../../kernels/ir/kernel.ts";
import type { KvCacheOptions } from "../../backend.ts";
import type { Executor, ExecutorContext } from "../executor.ts";
import type { TableRows } from "../program.ts";

export interface InstructionLike {
  readonly op: string;
}

/** Memory that an instruction reads or writes: where it begins, and the bytes of a row (0: not row by row). */
export interface Area {
  readonly at: number;
  readonly rowBytes: number;
}

export interface Access {
  readonly rows: Rows;
  readonly reads: readonly Area[];
  readonly writes: readonly Area[];
}

/**
 * With what else it may share a stage (stages.ts). "row by row": every row of it does its own work, so rows of several such
 * instructions go through all of them; areas of prepared activations and of the cache are no row's, since nobody else is
 * there. "as one": its chunks are taken together with those of others that need nothing of it. "barrier": with nothing.
 */
export type StageAccess<I> =
  | "barrier"
  | { readonly stage: "row by row" | "as one"; readonly of: (instruction: I) => Access };

/**
 * What its kernels are. "target": made for the target of matmuls, machine code where that has any. "wasm": WebAssembly.
 * Numbers: how many values they are given at a time; they are machine code where these are whole vectors.
 */
export type KernelCode<I> = "target" | "wasm" | ((instruction: I) => readonly number[]);

export interface InstructionDef<I extends InstructionLike> {
  readonly access: StageAccess<I>;
  /** Names of all that it calls. */
  readonly kernels: (instruction: I) => readonly string[];
  readonly code: KernelCode<I>;
  readonly execute: (instruction: I, context: ExecutorContext) => Executor;
}

/** What lowering a node asks of the compiler. */
export interface NodeCompiler {
  address(value: Value): number;
  vector(weight: Weight): number;
  rowsOf(weight: Weight): TableRows;
  /** Where a KvState lies, and the address of its block tables. */
  cache(state: number): { keys: number; values: number; rowBytes: number; tables: number };
  /** Where a RecurrentState lies in slot 0, and from a slot to the next. */
  recurrent(state: number): { state: number; slotBytes: number };
  readonly kvDType: KvCacheOptions["dtype"];
  /** Address of the tokens that each token's sequence has after the batch: i32 [maxTokens]. */
  lengths(): number;
  hasKernel(name: string): boolean;
  /** Makes a kernel known, and returns its name. */
  kernel(kernel: Kernel): string;
  /** An instruction that comes before the node's own. */
  push(instruction: InstructionLike): void;
  ropeTable(rope: Rope, factors: Weight | undefined): number;
  matmul(node: NodeOf<"matmul"> | NodeOf<"matmul_id">): InstructionLike;
}

/** The instruction that a node becomes, or the reason why the reference must compute it. */
export type LowerNode<K extends OpKind> = (
  c: NodeCompiler,
  node: NodeOf<K>,
) => InstructionLike | string;

export type LowerAny = (c: NodeCompiler, node: GraphNode) => InstructionLike | string;

/** The instruction, unless the columns are not a multiple of a vector's lanes. */
export function ifWhole<I extends InstructionLike>(cols: number, make: () => I): I | string {
  return cols % 4 === 0 ? make() : `${cols} columns, kernels take multiples of 4`;
}

export function area(at: number, rowBytes: number): Area {
  return { at, rowBytes };
}

/** Row r of the result is made of row r of x. */
export function mappedRows<
  I extends InstructionLike & { rows: Rows; x: number; out: number; cols: number },
>(): StageAccess<I> {
  return {
    stage: "row by row",
    of: ({ rows, x, out, cols }) => ({
      rows,
      reads: [area(x, cols * 4)],
      writes: [area(out, cols * 4)],
    }),
  };
}
