// How work is shared out among teams of lanes, by its size: what was fastest where it was measured (docs/gpu.md).

import type { GpuFacts } from "./device.ts";
import { type MatrixShape, matrixShapes } from "./wgsl/matmul-matrices.ts";
import type { ProductShape } from "./wgsl/product.ts";
import { TEAM } from "./wgsl/teams.ts";

export interface Tuning {
  /** Products of few tokens. */
  shapeFor(rows: number, cols: number): ProductShape;
  /** Levels are multiplied by dot4I8Packed. */
  readonly packedDots: boolean;
  /** Lanes of a workgroup that computes attention; 0: position by position (wgsl/attention.ts). */
  readonly attentionSize: number;
  /** The same, where several tokens are computed at once. */
  readonly promptAttentionSize: number;
  /** Where the commands of a step are cut into pieces that are submitted by themselves (commands.ts). */
  readonly cuts: readonly number[];
  /** Products of many, where there are matrix units: by the tokens of their tiles. */
  readonly matrices: readonly MatrixShape[];
}

/** Below so many rows there are too few teams to keep a large GPU's memory busy, unless several share rows. */
const FEW_ROWS = 8192;

/** Found on an NVIDIA H200. */
export const largeTuning: Tuning = {
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
export const plainTuning: Tuning = {
  ...largeTuning,
  shapeFor: () => ({ rows: 4, teams: 2, split: 1, ahead: 1 }),
  attentionSize: 0,
  promptAttentionSize: 0,
  cuts: [],
};

export function tuningFor({ subgroups, packedDots }: GpuFacts): Tuning {
  return { ...(subgroups && subgroups.min >= TEAM ? largeTuning : plainTuning), packedDots };
}
