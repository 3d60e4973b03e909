// The division of matmuls on matrix units (matmul-matrices.ts) among workgroups and subgroups: the shape of tiles for each matrix and batch
// size, whether the columns of a tile are split between two groups of subgroups, and the workgroup memory for that.

import type { Weight } from "../../../graph/graph.ts";
import { unpackOf } from "../unpack/table.ts";
import { type MatrixCalls, UNIT } from "./matrix-calls.ts";

/** The division of the work. */
export interface MatrixShape {
  /** Subgroup matrices of a subgroup: outputs x tokens; a power of two, at least 2, of outputs. */
  readonly ownOutputs: number;
  readonly ownTokens: number;
  /** Subgroups that share columns: outputs x tokens. There are twice as many where the columns are split. */
  readonly outputSubgroups: number;
  readonly tokenSubgroups: number;
  /** Columns that are staged at a time. */
  readonly depth: number;
  /** Steps of 16 columns by which tokens are loaded before they are multiplied. */
  readonly ahead: number;
  /** Tiles that are written out in the loop over the columns, instead of as many as a driver finds good. */
  readonly turns?: number | undefined;
  /** The time of a tile on a core, relative to other shapes. */
  readonly cost: number;
}

/** The smaller the tile, the more workgroups there are for a large GPU. Measured on an NVIDIA H200. */
export const matrixShapes: readonly MatrixShape[] = [
  {
    ownOutputs: 2,
    ownTokens: 2,
    outputSubgroups: 2,
    tokenSubgroups: 2,
    depth: 64,
    ahead: 2,
    cost: 9,
  },
  {
    ownOutputs: 8,
    ownTokens: 2,
    outputSubgroups: 1,
    tokenSubgroups: 4,
    depth: 64,
    ahead: 4,
    turns: 2,
    cost: 20,
  },
];

/** The shapes for types of 8 bits and more. */
export const wideMatrixShapes: readonly MatrixShape[] = [
  {
    ownOutputs: 2,
    ownTokens: 2,
    outputSubgroups: 2,
    tokenSubgroups: 2,
    depth: 64,
    ahead: 2,
    cost: 9,
  },
  {
    ownOutputs: 8,
    ownTokens: 2,
    outputSubgroups: 1,
    tokenSubgroups: 4,
    depth: 64,
    ahead: 2,
    cost: 20,
  },
];

/** The shapes for matmuls of experts: all have tiles of as many tokens, which are grouped once. */
export interface ExpertShapes {
  readonly usual: MatrixShape;
  /** The shape for types of 8 bits and more. */
  readonly wide: MatrixShape;
}

/** Measured on an NVIDIA H200 with two models (docs/journal/gpu-kernels.md): for each of them another shape is a few percent faster. */
export const expertMatrixShapes: ExpertShapes = {
  usual: matrixShapes[0]!,
  wide: wideMatrixShapes[0]!,
};

/** Tokens of a tile. */
export function tokensOf({ ownTokens, tokenSubgroups }: MatrixShape): number {
  return ownTokens * tokenSubgroups * UNIT;
}

/** Outputs of a tile. */
export function rowsOf({ ownOutputs, outputSubgroups }: MatrixShape): number {
  return ownOutputs * outputSubgroups * UNIT;
}

export interface ShapeRange {
  readonly shape: MatrixShape;
  readonly rows: readonly [least: number, most: number];
}

/** Batches with more tokens get the shape of these. */
const MOST_TOKENS = 512;

/** For each number of tokens the shape with the lowest cost, as ranges. */
export function rangesOf(
  shapes: readonly MatrixShape[],
  rows: number,
  least: number,
): ShapeRange[] {
  const step = Math.min(...shapes.map(tokensOf));
  const ranges: ShapeRange[] = [];
  for (let most = step; most < MOST_TOKENS + step; most += step) {
    const shape = shapes.reduce((best, one) =>
      costOf(one, rows, most) < costOf(best, rows, most) ? one : best,
    );
    const end = most >= MOST_TOKENS ? Infinity : most;
    const before = ranges.at(-1);
    if (end < least) continue;
    if (before?.shape === shape) ranges[ranges.length - 1] = { shape, rows: [before.rows[0], end] };
    else ranges.push({ shape, rows: [before ? before.rows[1] + 1 : least, end] });
  }
  return ranges;
}

/** Cores of the GPU on which costs were measured: it computes this many tiles at a time. */
const CORES = 132;

function costOf(shape: MatrixShape, rows: number, tokens: number): number {
  return Math.ceil(tilesOf(shape, rows, tokens) / CORES) * shape.cost;
}

function tilesOf(shape: MatrixShape, rows: number, tokens: number): number {
  return Math.ceil(rows / rowsOf(shape)) * Math.ceil(tokens / tokensOf(shape));
}

/** The use of matrix units. */
export interface Matrices {
  readonly shapes: readonly MatrixShape[];
  readonly wideShapes: readonly MatrixShape[];
  /** undefined: experts are not on matrix units. */
  readonly experts?: ExpertShapes | undefined;
  readonly calls: MatrixCalls;
  /** Workgroup memory. */
  readonly bytes: number;
}

/** The least bits per value of wide types: a lane holds more of a tile's weights while it multiplies the one before. */
const WIDE_BITS = 8;

/** The shapes for a weight, as deep as its fast unpacking needs, where there is memory for that. */
export function shapesFor(
  { dtype, shape: [, cols] }: Weight,
  { shapes, wideShapes, bytes }: Matrices,
): readonly MatrixShape[] {
  const isWide = (8 * dtype.blockBytes) / dtype.blockElems >= WIDE_BITS;
  const halves = unpackOf(dtype).lane?.halves;
  const span = typeof halves === "object" ? halves.span : 1;
  return (isWide ? wideShapes : shapes).map((shape) => {
    const deeper = { ...shape, depth: span };
    const isBetter = shape.depth % span !== 0 && cols! % span === 0;
    return isBetter && fittingMatrices(deeper, bytes)?.depth === span ? deeper : shape;
  });
}

/**
 * Parts of the columns that different subgroups of a workgroup have: the same for every shape and batch, since it decides the bits. A
 * core has two workgroups at a time where they are not split, so that less of the last round of a large matrix is lost.
 */
export function splitOf(rows: number, cols: number, shapes: readonly MatrixShape[]): 1 | 2 {
  if (shapes.some(({ depth }) => cols % (2 * depth) !== 0)) return 1;
  const rounds = Math.min(...shapes.map((shape) => tilesOf(shape, rows, MOST_TOKENS))) / CORES;
  return rounds > MANY_ROUNDS && Math.ceil(rounds) > rounds * MUCH_LOST ? 1 : 2;
}

/** Measured on an NVIDIA H200: [22016, 4096] has 5.2 rounds and is faster without, [12288, 4096] has 2.9 and is faster with. */
const MANY_ROUNDS = 4;
const MUCH_LOST = 1.1;

/**
 * The shape for experts, of whose matrices `weight` is one; undefined: they are not on matrix units. There are enough tiles without
 * splitting columns.
 */
export function expertShapeFor(weight: Weight, matrices: Matrices): SplitShape | undefined {
  if (!matrices.experts) return undefined;
  const { usual, wide } = matrices.experts;
  const [shape] = shapesFor(weight, { ...matrices, shapes: [usual], wideShapes: [wide] });
  return weight.shape[1]! % shape!.depth === 0 ? { ...shape!, split: 1 } : undefined;
}

/** Whether the columns are a multiple of the depth of every shape. */
export function hasMatrices(weight: Weight, matrices: Matrices): boolean {
  return shapesFor(weight, matrices).every(({ depth }) => weight.shape[1]! % depth === 0);
}

/** This shape, or one of less depth, that fits the workgroup memory; undefined: none does. */
export function fittingMatrices(shape: MatrixShape, bytes: number): MatrixShape | undefined {
  if (16 * memoryOf({ ...shape, split: 2 }).all <= bytes) return shape;
  const { depth, ahead } = shape;
  if (depth === 2 * UNIT) return undefined;
  return fittingMatrices({ ...shape, depth: depth / 2, ahead: Math.min(ahead, 2) }, bytes);
}

/** undefined: one of them does not fit. */
export function fittingExperts(
  { usual, wide }: ExpertShapes,
  bytes: number,
): ExpertShapes | undefined {
  const [first, second] = [fittingMatrices(usual, bytes), fittingMatrices(wide, bytes)];
  return first && second && { usual: first, wide: second };
}

export type SplitShape = MatrixShape & { readonly split: 1 | 2 };

interface TileMemory {
  /** Vectors of 16 bytes: of the weights of all parts of the columns, and of everything. */
  readonly weights: number;
  readonly all: number;
  /** Matrices of a subgroup whose sums are in workgroup memory at a time, beside each other. */
  readonly across: number;
}

/** After the multiplication, sums replace the weights: as many as there is room for, but two at least. */
export function memoryOf(shape: SplitShape): TileMemory {
  const subgroups = shape.outputSubgroups * shape.tokenSubgroups * shape.split;
  const weights = (shape.split * rowsOf(shape) * pitchOf(shape.depth)) / 8;
  const sums = (across: number): number => (subgroups * UNIT * sumsPitch(across)) / 4;
  let across = shape.ownOutputs;
  while (across > 2 && sums(across) > weights) across /= 2;
  return { weights, all: Math.max(weights, sums(across)), across };
}

/** Elements from a row of a tile to the next: padded, so that rows do not begin in the same bank. */
export function pitchOf(depth: number): number {
  return depth + 8;
}

/** Floats from a token's sums to the next one's, padded. */
export function sumsPitch(across: number): number {
  return across * UNIT + 8;
}
