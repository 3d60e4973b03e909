// The interface of an op on the CPU backend. A file of this folder has all of an op: how a node is lowered (LowerNode), which
// memory the instruction accesses (access), which kernels it calls and how wide they may be (kernels, code), and how a chunk
// of its work runs (execute). table.ts lists them; a missing part is a type error there.
//
// An instruction is plain data: it is sent to every compute thread once. Addresses are bytes. An op may have several
// instructions to choose from (matmul), and several ops may share one (everything elementwise).

import type { GraphNode, NodeOf, OpKind, Rope, Rows, Value, Weight } from "../../../graph/graph.ts";
import type { Kernel } from "../../../kernels/ir/kernel.ts";
import type { Executor, ExecutorContext } from "../executor.ts";
import type { KvRecord } from "../memory/kv-record.ts";
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
 * The instructions with which it may share a stage (stages.ts). "row by row": its rows are independent, so a row may go through several
 * such instructions; areas of prepared activations and of the cache are not listed, since no other such instruction accesses
 * them. "as one": its chunks are in one list with those of independent instructions. "barrier": with nothing.
 */
export type StageAccess<I> =
  | "barrier"
  | { readonly stage: "row by row" | "as one"; readonly of: (instruction: I) => Access };

/** The operands of an instruction that can compute some columns of its results without the others (column-stages.ts). */
export interface ColumnAccess {
  readonly rows: Rows;
  readonly cols: number;
  /** Addresses of operands that any column reads as a whole; all other operands are read column by column. */
  readonly whole: readonly number[];
  readonly writes: readonly number[];
  /** It reads or lists neurons that are not zero: a run of such instructions is worth a stage by itself. */
  readonly isSparse?: boolean;
}

/**
 * The lowering of its kernels. "target": for the target of the matmul kernels. "wasm": for WebAssembly. Numbers: the sizes
 * that they are called with; they are machine code if these are whole vectors.
 */
export type KernelCode<I> = "target" | "wasm" | ((instruction: I) => readonly number[]);

export interface InstructionDef<I extends InstructionLike> {
  readonly access: StageAccess<I>;
  /** Names of all kernels that it calls. */
  readonly kernels: (instruction: I) => readonly string[];
  readonly code: KernelCode<I>;
  /** "idle": it does nothing for few tokens. Optional: it cannot compute some columns alone. */
  readonly columns?: (instruction: I) => ColumnAccess | "idle" | undefined;
  readonly execute: (instruction: I, context: ExecutorContext) => Executor;
}

/** Keys, or values, of a KvState. */
export interface CacheRows {
  /** As in dtypes/. */
  readonly type: string;
  /** The address in block 0. */
  readonly at: number;
  readonly rowBytes: number;
  /** Address of a ScaledTable. */
  readonly tables: number;
}

/** The compiler (compile.ts), as the lowering of a node sees it. */
export interface NodeCompiler {
  /** The most rows of a batch. */
  readonly rows: number;
  address(value: Value): number;
  vector(weight: Weight): number;
  /** The weights of a convolution whose columns are whole vectors: f32 [taps, cols]. */
  taps(weight: Weight): number;
  rowsOf(weight: Weight): TableRows;
  cache(state: number): { readonly keys: CacheRows; readonly values: CacheRows };
  /** The address of a RecurrentState in slot 0, and the bytes from a slot to the next. */
  recurrent(state: number): { state: number; slotBytes: number };
  /** Memory of `bytes` bytes for each thread; instructions of the same size share it. */
  scratch(bytes: number): { scratch: number; scratchBytes: number };
  /** Records the first keys or values that the cache cannot hold. */
  readonly kvRecord: KvRecord;
  /** Address of i32 [maxTokens]: the tokens of each token's sequence after the batch. */
  lengths(): number;
  hasKernel(name: string): boolean;
  /** Registers a kernel, and returns its name. */
  kernel(kernel: Kernel): string;
  /** Adds an instruction before the node's own. */
  push(instruction: InstructionLike): void;
  ropeTable(rope: Rope, factors: Weight | undefined): number;
  matmul(node: NodeOf<"matmul"> | NodeOf<"matmul_id">): InstructionLike;
}

/** The instruction of a node, or the reason why the reference must compute it. */
export type LowerNode<K extends OpKind> = (
  c: NodeCompiler,
  node: NodeOf<K>,
) => InstructionLike | string;

export type LowerAny = (c: NodeCompiler, node: GraphNode) => InstructionLike | string;

/** The instruction, or a reason, where the columns are not a multiple of a vector's lanes. */
export function ifWhole<I extends InstructionLike>(cols: number, make: () => I): I | string {
  return cols % 4 === 0 ? make() : `${cols} columns, kernels take multiples of 4`;
}

export function area(at: number, rowBytes: number): Area {
  return { at, rowBytes };
}

/** The access of an instruction that computes row r of the result from row r of x. */
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
