// How work is shared out among teams of lanes, by its size: what was fastest where it was measured (docs/gpu.md).

import type { Batch } from "../../graph/batch.ts";
import type { GpuFacts } from "./device.ts";
import type { MatmulShape } from "./wgsl/matmul-few.ts";
import { type MatrixShape, matrixShapes } from "./wgsl/matmul-matrices.ts";
import { TEAM } from "./wgsl/teams.ts";

export interface Tuning {
  /** Matmuls of few tokens: by rows, columns and type of the weights. */
  shapeFor(rows: number, cols: number, dtype: string): MatmulShape;
  /** Levels are multiplied by dot4I8Packed. */
  readonly packedDots: boolean;
  /** Lanes of a workgroup that computes attention; 0: position by position (wgsl/attention.ts). */
  readonly attentionSize: number;
  /** The same, where several tokens are computed at once. */
  readonly promptAttentionSize: number;
  /** Where the commands of a batch are cut into pieces that are submitted by themselves (commands.ts). */
  readonly cuts: readonly number[];
  /** Matmuls of many, where there are matrix units: by the tokens of their tiles. */
  readonly matrices: readonly MatrixShape[];
}

/** Below so many rows there are too few teams to keep a large GPU's memory busy, unless several share rows. */
const FEW_ROWS = 8192;

/** Found on an NVIDIA H200. */
const largeTuning: Tuning = {
  shapeFor: (rows) =>
    rows < FEW_ROWS
      ? { rows: 4, teams: 8, split: 2, ahead: 2 }
      : { rows: 4, teams: 8, split: 1, ahead: 1 },
  packedDots: true,
  attentionSize: 256,
  promptAttentionSize: 128,
  cuts: [1 / 16, 1 / 4],
  matrices: matrixShapes,
};

/** Where lanes exchange values through workgroup memory, they wait for each other: they do it rarely, in small groups. */
const plainTuning: Tuning = {
  ...largeTuning,
  shapeFor: () => ({ rows: 4, teams: 2, split: 1, ahead: 1 }),
  attentionSize: 0,
  promptAttentionSize: 0,
  cuts: [],
};

/** For measuring, once weights are there. */
export interface GpuTuningControls {
  /** The next batches are computed by other kernels, over the same memory. */
  retune(tuning: Tuning): Promise<void>;
  /** Milliseconds of GPU time of a batch, from several in one submission. */
  timeBatch(batch: Batch): Promise<number>;
}

/** Shapes between which tuning chooses: what they are called, and what they are. */
export const matmulShapes: ReadonlyMap<string, MatmulShape> = new Map(
  [
    { rows: 4, teams: 8, split: 1, ahead: 1 },
    { rows: 4, teams: 8, split: 2, ahead: 2 },
    { rows: 4, teams: 8, split: 4, ahead: 1 },
    { rows: 4, teams: 4, split: 1, ahead: 1 },
    { rows: 4, teams: 2, split: 1, ahead: 1 },
    { rows: 2, teams: 8, split: 1, ahead: 1 },
    { rows: 2, teams: 4, split: 2, ahead: 2 },
    { rows: 8, teams: 4, split: 1, ahead: 1 },
  ].map((shape) => [shapeId(shape), shape]),
);

/** "4x8.split2.ahead2": rows of a team x teams of a workgroup. */
function shapeId({ rows, teams, split, ahead }: MatmulShape): string {
  const rest = [split > 1 ? `.split${split}` : "", ahead > 1 ? `.ahead${ahead}` : ""];
  return `${rows}x${teams}${rest.join("")}`;
}

/** Of the kernels whose times tuning compares (wgsl/matmul.ts, matmul.ts): raise it when one of them changes. */
export const MATMUL_REVISION = 1;

export function tuningFor({ subgroups, packedDots }: GpuFacts): Tuning {
  return { ...(subgroups && subgroups.min >= TEAM ? largeTuning : plainTuning), packedDots };
}
