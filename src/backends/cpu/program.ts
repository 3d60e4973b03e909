// The frame of a program. A program is a plan as a list of instructions with addresses: plain data that is sent to every
// compute thread once. compile.ts makes it, ops/ has the instructions; here is the part that all instructions share.
//
// Data that changes between batches (tokens, positions, block tables) is in the batch area of the shared memory
// (BatchArea). Addresses are bytes.

import type { KernelTarget } from "../../kernels/target.ts";
import type { DemandProgram } from "./disk/demand.ts";

/** Addresses of the batch's data. */
export interface BatchArea {
  /** i32 [countWords()]: see countOf (graph/batch.ts). */
  readonly counts: number;
  /** i32 each: [maxTokens]. */
  readonly tokens: number;
  readonly positions: number;
  /** Tokens of each token's sequence after the batch; undefined: no instruction reads them. */
  readonly lengths: number | undefined;
  /** i32 [maxOutputs]: the token of each output row. */
  readonly outputRows: number;
  /** The cache blocks of each token's sequence. */
  readonly tables: readonly ScaledTable[];
  readonly tableLength: number;
  /** i32 [maxTokens][SEGMENT.words]; 0: the graph has no recurrent state. */
  readonly segments: number;
  /** By the number of the adapter: the tokens that use it, and the outputs. */
  readonly adapters: readonly { readonly tokens: AdapterArea; readonly outputs: AdapterArea }[];
}

/** The addresses of an AdapterList (graph/adapter-list.ts). */
export interface AdapterArea {
  /** i32 each. */
  readonly rows: number;
  readonly places: number;
  /** f32. */
  readonly scales: number;
}

/** The words of a token's row in BatchArea.segments, about its sequence in this batch. */
export const SEGMENT = {
  words: 3,
  /** The row of its first token. */
  first: 0,
  /** The slot of its recurrent state before the batch; NO_SLOT: zeros. */
  from: 1,
  /** In the row of its last token: the slot after the batch. Otherwise NO_SLOT. */
  to: 2,
} as const;

/** Cache blocks of a group in units of `stride`, for rows of one size (cache-place.ts). */
export interface ScaledTable {
  readonly group: number;
  /** i32 [maxTokens][tableLength]. */
  readonly at: number;
  readonly stride: number;
}

/** A matrix whose rows are read as floats, in any of its layouts (weights.ts). */
export type TableRows = { readonly at: number; readonly cols: number; readonly dtype: string } & (
  | { readonly layout: "raw"; readonly rowBytes: number }
  | { readonly layout: "blocks"; readonly rowPanelBytes: number; readonly target: KernelTarget }
  | { readonly layout: "floats"; readonly rowPanelBytes: number; readonly target: KernelTarget }
);

/** Instructions (by index, in order) without a barrier in between: stages.ts. */
export interface Stage {
  readonly kind: "as one" | "row by row" | "by column";
  readonly instructions: readonly number[];
  /** Columns of the results of a stage "by column". */
  readonly cols?: number;
  /** It runs only where a batch has too many tokens for the stage "by column" before it, which has its instructions, too. */
  readonly isRest?: boolean;
}

/** The program's data that its instructions see. */
export interface ProgramFrame {
  readonly batch: BatchArea;
  /** i32 area of the team: see team.ts. */
  readonly control: number;
  /** f32 [scoresRows][scoresLength] for each thread. scoresLength is the context plus a sink, in whole vectors. */
  readonly scores: number;
  readonly scoresRows: number;
  readonly scoresLength: number;
  readonly threads: number;
  /** Experts that are read on demand; undefined: none. */
  readonly demand?: DemandProgram | undefined;
}
