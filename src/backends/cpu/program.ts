// A program: a plan as a list of instructions with addresses, plain data that is sent to every compute thread once.
// compile.ts makes it; ops/ has the instructions and what each of them does. Here is what all of them see.
//
// What differs from batch to batch (tokens, positions, block tables) is in the batch area of the shared memory, whose
// addresses are here too. Addresses are bytes.

import type { KernelTarget } from "../../kernels/target.ts";

/** Where the batch's data is. */
export interface BatchArea {
  /** i32 [3]: see countOf (graph/batch.ts). */
  readonly counts: number;
  /** i32 each: [maxTokens]. */
  readonly tokens: number;
  readonly positions: number;
  /** Tokens of each token's sequence after the batch; undefined: nobody asks. */
  readonly lengths: number | undefined;
  /** i32 [maxOutputs]: which of the tokens each row of outputs is. */
  readonly outputRows: number;
  /** Of the cache blocks of each token's sequence. */
  readonly tables: readonly ScaledTable[];
  readonly tableLength: number;
  /** i32 [maxTokens][SEGMENT.words]; 0: the graph keeps no recurrent state, and nobody reads it. */
  readonly segments: number;
}

/** What a token's row knows of its sequence in this batch: see BatchArea.segments. */
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

/** A matrix whose rows are read as floats, in whichever layout it has (weights.ts). */
export type TableRows = { readonly at: number; readonly cols: number; readonly dtype: string } & (
  | { readonly layout: "raw"; readonly rowBytes: number }
  | { readonly layout: "blocks"; readonly rowPanelBytes: number; readonly target: KernelTarget }
  | { readonly layout: "floats"; readonly rowPanelBytes: number; readonly target: KernelTarget }
);

/** Instructions (by index, in order) that need no barrier in between: stages.ts. */
export interface Stage {
  readonly kind: "as one" | "row by row";
  readonly instructions: readonly number[];
}

/** What instructions see of the program that they are part of. */
export interface ProgramFrame {
  readonly batch: BatchArea;
  /** i32 area of the team: see team.ts. */
  readonly control: number;
  /** f32 [4][scoresLength] for each thread: four queries at once. Longer than the context by whole vectors. */
  readonly scores: number;
  readonly scoresLength: number;
  readonly threads: number;
}
