// A program: a plan as a list of instructions with addresses, plain data that is sent to every compute thread once.
// compile.ts makes it, executors.ts say what each instruction does.
//
// What differs from step to step (tokens, positions, block tables) is in the step area of the shared memory, whose
// addresses are here too. Addresses are bytes.

import type { RopeLayout, Rows } from "../../graph/graph.ts";
import type { KernelTarget } from "../../kernels/target.ts";

/** Which of StepArea.counts is the number of rows of each kind. */
export const countOf: Readonly<Record<Rows, number>> = { tokens: 0, outputs: 1, logits: 2 };

/** Where the step's data is. */
export interface StepArea {
  /** i32 [3]: see countOf. */
  readonly counts: number;
  /** i32 each: [maxTokens]. */
  readonly tokens: number;
  readonly positions: number;
  /** i32 [maxOutputs]: which of the tokens each row of outputs is. */
  readonly outputRows: number;
  /** Of the cache blocks of each token's sequence. */
  readonly tables: readonly ScaledTable[];
  readonly tableLength: number;
}

/** Cache blocks in units of `stride`, for rows of one size (cache-place.ts). */
export interface ScaledTable {
  /** i32 [maxTokens][tableLength]. */
  readonly at: number;
  readonly stride: number;
}

/** A matrix whose rows are read as floats, in whichever layout it has (weights.ts). */
export type TableRows = { readonly at: number; readonly cols: number; readonly dtype: string } & (
  | { readonly layout: "raw"; readonly rowBytes: number }
  | { readonly layout: "blocks"; readonly tileBytes: number; readonly target: KernelTarget }
  | { readonly layout: "floats"; readonly tileBytes: number; readonly target: KernelTarget }
);

interface Matmul {
  readonly rows: Rows;
  /** Columns of the result, and of the input. */
  readonly n: number;
  readonly k: number;
  readonly out: number;
  /** f32 [n], or -1. */
  readonly bias: number;
}

/** One way to compute a product of tiles: a variant of kernels/matmul-variants.ts with its kernels' names. */
export interface TiledVariant {
  readonly vector: string;
  /** The same for `streams` tiles of rows in turns. */
  readonly vectorStreams: string;
  /** And for half as many. */
  readonly vectorHalf?: string;
  readonly streams: number;
  /**
   * For tiles of 2, 3, ..., `tile` tokens and so many groups of rows, or all of `streams` tiles of rows in turns; empty:
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

/** Address of i32 [most rows + 1]: which variant computes so many rows. Products and their activations share it. */
export type ChoiceTable = number;

interface TiledMatmul extends Matmul {
  readonly variants: readonly TiledVariant[];
  /** Bytes of a vector of the kernels: the results of a group of rows. */
  readonly width: number;
  readonly choice: ChoiceTable;
  readonly x: number;
  readonly w: number;
  readonly tileBytes: number;
  /** f32 [rows][16] for each thread: results of a tile that has rows beyond n. */
  readonly scratch: number;
  readonly scratchBytes: number;
}

export type Instruction =
  /** Run by the leader alone: a graph node by the reference. */
  | { readonly op: "leader"; readonly index: number }
  | {
      readonly op: "embed";
      readonly table: TableRows;
      readonly out: number;
      /** kernel(row, out, cols) for raw rows; undefined: rows are unpacked by TypeScript. */
      readonly kernel: string | undefined;
    }
  | { readonly op: "select"; readonly x: number; readonly out: number; readonly cols: number }
  | {
      readonly op: "rms_norm";
      readonly rows: Rows;
      readonly x: number;
      readonly out: number;
      readonly weight: number;
      readonly cols: number;
      readonly size: number;
      readonly eps: number;
    }
  /** kernel(x, weight, out, cols, eps, bias); the one without a bias does not read the last. */
  | {
      readonly op: "layer_norm";
      readonly rows: Rows;
      readonly kernel: string;
      readonly x: number;
      readonly out: number;
      readonly weight: number;
      readonly bias: number;
      readonly cols: number;
      readonly eps: number;
    }
  | {
      readonly op: "softmax";
      readonly rows: Rows;
      readonly x: number;
      readonly out: number;
      readonly cols: number;
    }
  /** Elementwise over all rows: kernel(x, out, n, argument); most do not read the last. */
  | {
      readonly op: "unary";
      readonly rows: Rows;
      readonly kernel: string;
      readonly x: number;
      readonly out: number;
      readonly cols: number;
      readonly argument: number;
    }
  /** Elementwise over all rows: kernel(a, b, out, n). */
  | {
      readonly op: "binary";
      readonly rows: Rows;
      readonly kernel: string;
      readonly a: number;
      readonly b: number;
      readonly out: number;
      readonly cols: number;
    }
  /** The cosines and sines of each token's position: once per step for all layers. */
  | {
      readonly op: "rope_table";
      /** f32 [maxTokens][tableSize]. */
      readonly table: number;
      readonly tableSize: number;
      readonly layout: RopeLayout;
      readonly frequencies: Float32Array;
      readonly magnitude: number;
      /** f32 [pairs], or -1. */
      readonly factors: number;
    }
  | {
      readonly op: "rope";
      readonly kernel: string;
      readonly x: number;
      readonly out: number;
      /** f32 [maxTokens][tableSize], filled by a rope_table instruction. */
      readonly table: number;
      readonly tableSize: number;
      readonly cols: number;
      readonly headDim: number;
      readonly dims: number;
    }
  | {
      readonly op: "kv_write";
      readonly kernel: string;
      readonly k: number;
      readonly v: number;
      readonly keys: number;
      readonly values: number;
      readonly cols: number;
      readonly rowBytes: number;
      /** Address of a ScaledTable. */
      readonly tables: number;
    }
  | {
      readonly op: "attention";
      readonly kvType: string;
      readonly q: number;
      readonly out: number;
      readonly keys: number;
      readonly values: number;
      readonly heads: number;
      readonly kvHeads: number;
      readonly headDim: number;
      readonly headBytes: number;
      readonly rowBytes: number;
      readonly tables: number;
      readonly scale: number;
    }
  /** Activations to bytes, in tiles of tokens. */
  | {
      readonly op: "quantize";
      readonly rows: Rows;
      readonly variants: readonly ActivationVariant[];
      readonly choice: ChoiceTable;
      readonly x: number;
      readonly out: number;
      readonly cols: number;
      readonly span: number;
    }
  /** Activations quantized to a dtype and back, as floats. */
  | {
      readonly op: "round";
      readonly rows: Rows;
      readonly dtype: string;
      readonly x: number;
      readonly out: number;
      readonly cols: number;
      /** One row of `dtype` for each thread. */
      readonly scratch: number;
      readonly scratchBytes: number;
    }
  | ({
      readonly op: "matmul_blocks";
      readonly spans: number;
      readonly levels: number;
      /** For each thread, where kernels unpack tiles (AMX, i8mm); otherwise -1. */
      readonly tileScratch: number;
      readonly tileScratchBytes: number;
    } & TiledMatmul)
  | ({
      readonly op: "matmul_floats";
      /** From one group of rows to the next in the tiles that the matrix kernels read. */
      readonly groupBytes: number;
      /** Makes a float32 tile of a half float one, in `wide` (one for each thread); undefined: the kernels read it as it is. */
      readonly widen: string | undefined;
      readonly wide: number;
    } & TiledMatmul)
  /** Any type: each row unpacked to floats, then multiplied. */
  | ({
      readonly op: "matmul_rows";
      readonly kernel: string;
      readonly dtype: string;
      readonly x: number;
      readonly w: number;
      readonly rowBytes: number;
      /** f32 [k] for each thread. */
      readonly scratch: number;
    } & Matmul);

export type InstructionKind = Instruction["op"];
export type InstructionOf<K extends InstructionKind> = Extract<Instruction, { op: K }>;

/** Instructions (by index, in order) that need no meeting of the threads in between: stages.ts. */
export interface Stage {
  readonly kind: "together" | "in_turn";
  readonly instructions: readonly number[];
}

export interface Program {
  readonly instructions: readonly Instruction[];
  readonly stages: readonly Stage[];
  readonly step: StepArea;
  /** i32 area of the team: see team.ts. */
  readonly control: number;
  /** f32 [4][scoresLength] for each thread: four queries at once. Longer than the context by whole vectors. */
  readonly scores: number;
  readonly scoresLength: number;
  readonly threads: number;
}
