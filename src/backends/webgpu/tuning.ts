// The tuning of the GPU's kernels: how work is divided among subgroups of lanes, by its size. The defaults were measured
// (docs/inside/gpu.md).

import type { Batch } from "../../graph/batch.ts";
import type { GraphNode } from "../../graph/graph.ts";
import type { GpuFacts } from "./device.ts";
import type { Kernel } from "./wgsl/kernel.ts";
import type { MatmulShape, SmallBatchShape } from "./wgsl/matmul-gemv.ts";
import {
  type ExpertShapes,
  expertMatrixShapes,
  type MatrixShape,
  matrixShapes,
  wideMatrixShapes,
} from "./wgsl/matrix-shapes.ts";
import { SUBGROUP } from "./wgsl/subgroups.ts";

export interface Tuning {
  /** The shape of matmuls of few tokens, by rows, columns and type of the weights. */
  shapeFor(rows: number, cols: number, dtype: string): MatmulShape;
  /** The shape of matmuls of several tokens. */
  readonly smallBatch: SmallBatchShape;
  /** Quants are multiplied by dot4I8Packed. */
  readonly packedDots: boolean;
  /** Lanes of a workgroup that computes attention; 0: position by position (wgsl/attention.ts). */
  readonly attentionSize: number;
  /** The same for batches of several tokens. */
  readonly promptAttentionSize: number;
  /** The points at which the commands of a batch are split into pieces that are submitted separately (commands.ts). */
  readonly cuts: readonly number[];
  /** The shapes of matmuls of many tokens on matrix units, by the tokens of a batch. */
  readonly matrices: readonly MatrixShape[];
  /** The same for types of 8 bits and more. */
  readonly wideMatrices: readonly MatrixShape[];
  /** The same for experts; undefined: they are not on matrix units. */
  readonly expertMatrices?: ExpertShapes | undefined;
  /** Attention of many tokens is on matrix units, too. */
  readonly matrixAttention: boolean;
  /** The kernels of a token are merged into one dispatch for each layer (layers.ts); undefined: each has its own. */
  readonly layerDispatch?: LayerDispatch | undefined;
}

export interface LayerDispatch {
  /** Workgroups, all of which must run at the same time; 0: each kernel has its own dispatch. */
  readonly groups: number;
  /** The number of polls by which a workgroup waits for the others, before it gives up. */
  readonly polls: number;
  /** Lanes of a workgroup, more than each kernel would have: one workgroup with many shares a core better than several that wait; undefined: as they have. */
  readonly lanes?: number | undefined;
  /** Only in models whose layers have no more bytes of weights, on average. */
  readonly mostBytes?: number;
  /** Only in models whose layers have this shape (layer-shape.ts). */
  readonly shape?: string;
  /** The shapes of matmuls that it was measured with, instead of Tuning.shapeFor. */
  readonly shapeFor?: Tuning["shapeFor"];
  /** Why it was chosen, for --explain. */
  readonly why?: string;
  /** For other models. */
  readonly otherwise?: LayerDispatch | undefined;
}

/** About a second of an H200, where a look takes 0.6 us. */
export const USUAL_POLLS: number = 2 ** 21;

/** The revision of layer kernels (layers.ts): raise it when their speed changes, so that earlier times are not used. */
export const LAYER_REVISION = 1;

/** GPUs on which layer kernels were measured (docs/journal/gpu-kernels.md), by their names. */
const measuredLayers: readonly { name: RegExp; dispatch: LayerDispatch }[] = [
  {
    name: /\bh200\b/i,
    dispatch: {
      ...{ groups: 176, polls: USUAL_POLLS, mostBytes: 64 * 2 ** 20 },
      why: "the default of an H200",
      otherwise: {
        ...{ groups: 132, lanes: 512, polls: USUAL_POLLS, mostBytes: 128 * 2 ** 20 },
        why: "the default of an H200",
      },
    },
  },
];

/** Whether workgroups of this device can wait for each other in layer kernels. */
export function canWait({ subgroups, isSoftware }: GpuFacts): boolean {
  return isSoftware || (subgroups !== undefined && subgroups.min >= SUBGROUP);
}

/** The layer kernels of GPUs on which they were measured; undefined: of others. */
export function usualLayers(facts: GpuFacts): LayerDispatch | undefined {
  return measuredLayers.find(({ name }) => name.test(facts.name))?.dispatch;
}

/** With dispatches of whole layers: `groups` workgroups; undefined: as the tuning says, or where they were measured to be faster; 0: none. */
export function withLayers(tuning: Tuning, facts: GpuFacts, groups: number | undefined): Tuning {
  if (groups === 0 || !canWait(facts)) return { ...tuning, layerDispatch: undefined };
  const asked = { polls: USUAL_POLLS, why: "LANTERN_LAYER_GROUPS" };
  return {
    ...tuning,
    layerDispatch:
      groups === undefined ? (tuning.layerDispatch ?? usualLayers(facts)) : { groups, ...asked },
  };
}

/** With fewer rows there are too few subgroups to keep a large GPU's memory busy, unless several subgroups share rows. */
const FEW_ROWS = 8192;
/** With so few, as routers have, four subgroups share rows. */
const FEWEST_ROWS = 512;

/**
 * Found on an NVIDIA H200. Workgroups have 256 lanes at most, which every device allows; an Intel Gen9 allows no more, and kernels of llama.cpp with 288 do
 * not compile there (https://github.com/ngxson/wllama/issues/229).
 */
const largeTuning: Tuning = {
  shapeFor: (rows) =>
    rows <= FEWEST_ROWS
      ? { rows: 4, subgroups: 8, split: 4, ahead: 2 }
      : rows < FEW_ROWS
        ? { rows: 4, subgroups: 8, split: 2, ahead: 2 }
        : { rows: 4, subgroups: 8, split: 1, ahead: 1 },
  smallBatch: { most: 64, rows: 4, tiles: [2, 4, 8] },
  packedDots: true,
  attentionSize: 256,
  promptAttentionSize: 128,
  cuts: [1 / 16, 1 / 4],
  matrices: matrixShapes,
  wideMatrices: wideMatrixShapes,
  expertMatrices: expertMatrixShapes,
  matrixAttention: true,
};

/** Without subgroups, lanes exchange values through workgroup memory, with barriers: they do it rarely, in small groups. */
const plainTuning: Tuning = {
  ...largeTuning,
  shapeFor: () => ({ rows: 4, subgroups: 2, split: 1, ahead: 1 }),
  smallBatch: { most: 16, rows: 2, tiles: [4] },
  attentionSize: 0,
  promptAttentionSize: 0,
  cuts: [],
};

/** For measuring, once weights are uploaded. */
export interface GpuTuningControls {
  /** The next batches are computed by other kernels, over the same memory. */
  retune(tuning: Tuning): Promise<void>;
  /** Milliseconds of GPU time of a batch, from several in one submission: of all kernels, or of those that are wanted. */
  timeBatch(batch: Batch, wants?: KernelFilter): Promise<number>;
  /** The kernels of a batch of this size that are wanted. */
  kernelsOf(batch: Batch, wants: KernelFilter): Kernel[];
  /** run() without a second try: false where workgroups of a layer kernel could not wait for each other. Only another retune() helps then. */
  tryBatch(batch: Batch): Promise<boolean>;
}

/** Chooses kernels by their properties and by the nodes that they compute. */
export type KernelFilter = (kernel: Kernel, nodes: readonly GraphNode[]) => boolean;

/** The shapes that tuning chooses from, by name. */
export const matmulShapes: ReadonlyMap<string, MatmulShape> = new Map(
  [
    { rows: 4, subgroups: 8, split: 1, ahead: 1 },
    { rows: 4, subgroups: 8, split: 2, ahead: 2 },
    { rows: 4, subgroups: 8, split: 4, ahead: 1 },
    { rows: 4, subgroups: 4, split: 1, ahead: 1 },
    { rows: 4, subgroups: 2, split: 1, ahead: 1 },
    { rows: 2, subgroups: 8, split: 1, ahead: 1 },
    { rows: 2, subgroups: 4, split: 2, ahead: 2 },
    { rows: 8, subgroups: 4, split: 1, ahead: 1 },
    { rows: 8, subgroups: 8, split: 1, ahead: 1 },
  ].map((shape) => [shapeId(shape), shape]),
);

/** "4x8.split2.ahead2": rows of a subgroup x subgroups of a workgroup. */
function shapeId({ rows, subgroups, split, ahead }: MatmulShape): string {
  const rest = [split > 1 ? `.split${split}` : "", ahead > 1 ? `.ahead${ahead}` : ""];
  return `${rows}x${subgroups}${rest.join("")}`;
}

/** The revision of the kernels that tuning compares (wgsl/matmul-gemv.ts): raise it when their speed changes. */
export const MATMUL_REVISION = 7;

export function tuningFor({ subgroups, packedDots, subgroupMatrix }: GpuFacts): Tuning {
  if (!subgroups || subgroups.min < SUBGROUP) return { ...plainTuning, packedDots };
  return subgroupMatrix
    ? {
        ...largeTuning,
        packedDots,
        smallBatch: { ...largeTuning.smallBatch, most: SMALL_BATCH_USERS },
      }
    : { ...largeTuning, packedDots };
}

/** From more tokens on, matrix units are faster: 64 take 11 ms of a 7B on an NVIDIA H200, and 16 with dot4I8Packed; 32 take 10. */
const SMALL_BATCH_USERS = 32;
