// The data of matmul instructions, for matmul.ts and the files that lower and run them.

import type { Rows } from "../../../graph/graph.ts";
import type { GroupTable } from "./expert-groups.ts";

export interface Matmul {
  readonly rows: Rows;
  /** Columns of the result, and of the input. */
  readonly n: number;
  readonly k: number;
  readonly out: number;
  /** f32 [n], or [experts * n]; -1: no bias. */
  readonly bias: number;
  /** Each token uses the matrices of its experts; undefined: there is one matrix. */
  readonly experts?: ExpertMatmul | undefined;
}

/** The additional data of a matmul with a matrix for each expert; n and k are those of one expert. */
export interface ExpertMatmul {
  readonly groups: GroupTable;
  /** Bytes from one expert's weights to the next one's. */
  readonly expertBytes: number;
  /** Rows of x for each token: 1, or one for each slot. */
  readonly perToken: number;
  /** Bytes from one pair's prepared activations to the next one's. */
  readonly pairBytes: number;
  /** The address of unprepared x, where experts with a single token read it; -1: they read prepared activations. */
  readonly direct: number;
  /** f32 [rows][GROUP_PANELS * 16] for each thread: results of an expert that has several tokens. */
  readonly panel: number;
  readonly panelBytes: number;
  /** Experts are in slots, and read on demand: the weight's number in DemandProgram.weights; undefined: all are there. */
  readonly demand?: number | undefined;
}

/** Row panels that are computed for an expert's tokens before their results are copied to `out`. */
export const GROUP_PANELS = 16;

/** A variant of kernels/matmul-variants.ts with the names of its kernels. */
export interface TiledVariant {
  readonly vector: string;
  /** The same for `streams` row panels at once. */
  readonly vectorStreams: string;
  /** And for half as many. */
  readonly vectorHalf?: string;
  readonly streams: number;
  /**
   * For token tiles of 2, 3, ..., `tile` tokens and `groups` groups of rows, or all groups of `streams` row panels at
   * once; empty: tokens are computed one by one.
   */
  readonly matrix: readonly {
    readonly kernel: string;
    readonly groups: number;
    readonly inStreams?: string;
  }[];
  /** Unpacks a row panel for them. */
  readonly unpack?: string;
  readonly tile: number;
  /** Bytes from one token's activations to the next one's. */
  readonly tokenBytes: number;
  /** Split into chunks for all threads. */
  readonly shared: boolean;
}

/** The layout of activations for a variant. */
export interface ActivationVariant {
  readonly kernel: string;
  readonly blockBytes: number;
  readonly tile: number;
}

/** Address of i32 [most rows + 1]: the variant for each number of rows. Matmuls and their activations share it. */
export type ChoiceTable = number;

export interface TiledMatmul extends Matmul {
  readonly variants: readonly TiledVariant[];
  /** Bytes of a vector of the kernels, which holds the results of a group of rows. */
  readonly width: number;
  readonly choice: ChoiceTable;
  readonly x: number;
  readonly w: number;
  readonly rowPanelBytes: number;
  /** f32 [rows][16] for each thread: results of a row panel with padding rows. */
  readonly scratch: number;
  readonly scratchBytes: number;
}

/** The generic matmul, for any type: each row is dequantized, then multiplied. F32 rows are multiplied where they are. */
export interface MatmulRows extends Matmul {
  readonly op: "matmul_rows";
  /** undefined: plain TypeScript, opt level 1. */
  readonly kernel: string | undefined;
  readonly dtype: string;
  readonly x: number;
  readonly w: number;
  readonly rowBytes: number;
  /** f32 [k] for each thread, as long as the longest row of all matmuls, which share it. */
  readonly scratch: number;
  readonly scratchBytes: number;
}
