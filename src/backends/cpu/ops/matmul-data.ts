// What the instructions of matmuls are made of: plain data, for matmul.ts and for those who lower and run them.

import type { Rows } from "../../../graph/graph.ts";
import type { GroupTable } from "./expert-groups.ts";

export interface Matmul {
  readonly rows: Rows;
  /** Columns of the result, and of the input. */
  readonly n: number;
  readonly k: number;
  readonly out: number;
  /** f32 [n], of each expert where there are several, or -1. */
  readonly bias: number;
  /** Each token is multiplied with the matrices of its experts; undefined: there is one matrix. */
  readonly experts?: ExpertMatmul | undefined;
}

/** What a matmul with a matrix for each expert has beside that: n and k are those of one expert. */
export interface ExpertMatmul {
  readonly groups: GroupTable;
  /** From one expert's weights to the next one's. */
  readonly expertBytes: number;
  /** Rows of x that a token has: 1, or one for each slot. */
  readonly perToken: number;
  /** Of prepared activations: from one pair's to the next one's. */
  readonly pairBytes: number;
  /** x as it is, where experts with a single token read it; -1: they read what was prepared. */
  readonly direct: number;
  /** f32 [rows][GROUP_PANELS * 16] for each thread: results of an expert that has several tokens. */
  readonly panel: number;
  readonly panelBytes: number;
}

/** row panels that are computed for an expert's tokens before their results go to where they belong. */
export const GROUP_PANELS = 16;

/** One way to compute a matmul of tiles: a variant of kernels/matmul-variants.ts with its kernels' names. */
export interface TiledVariant {
  readonly vector: string;
  /** The same for `streams` row panels in turns. */
  readonly vectorStreams: string;
  /** And for half as many. */
  readonly vectorHalf?: string;
  readonly streams: number;
  /**
   * For tiles of 2, 3, ..., `tile` tokens and so many groups of rows, or all of `streams` row panels in turns; empty:
   * tokens come one by one.
   */
  readonly matrix: readonly {
    readonly kernel: string;
    readonly groups: number;
    readonly inStreams?: string;
  }[];
  readonly tile: number;
  /** From one token's activations to the next one's. */
  readonly tokenBytes: number;
  /** Cut into chunks for all threads. */
  readonly shared: boolean;
}

/** How activations are stored for a variant. */
export interface ActivationVariant {
  readonly kernel: string;
  readonly blockBytes: number;
  readonly tile: number;
}

/** Address of i32 [most rows + 1]: which variant computes so many rows. Matmuls and their activations share it. */
export type ChoiceTable = number;

export interface TiledMatmul extends Matmul {
  readonly variants: readonly TiledVariant[];
  /** Bytes of a vector of the kernels: the results of a group of rows. */
  readonly width: number;
  readonly choice: ChoiceTable;
  readonly x: number;
  readonly w: number;
  readonly rowPanelBytes: number;
  /** f32 [rows][16] for each thread: results of a tile that has rows beyond n. */
  readonly scratch: number;
  readonly scratchBytes: number;
}

/** Any type: each row unpacked to floats, then multiplied. */
export interface MatmulRows extends Matmul {
  readonly op: "matmul_rows";
  readonly kernel: string;
  readonly dtype: string;
  readonly x: number;
  readonly w: number;
  readonly rowBytes: number;
  /** f32 [k] for each thread, with room for the longest rows of all matmuls, which share it. */
  readonly scratch: number;
  readonly scratchBytes: number;
}
