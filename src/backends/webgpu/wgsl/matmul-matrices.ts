// matmul for many tokens on matrix units (Chromium's experimental subgroup matrices): a workgroup computes a tile of outputs
// x tokens. Weights are unpacked into workgroup memory as half floats, once for all tokens of the tile; activations, which
// were rounded to half floats before (round-activations.ts), are loaded as whole matrices (matrix-tiles.ts). Sums are float32.
//
// Quantized weights and activations lose their last bits as half floats: docs/gpu.md says how much.

import { countOf } from "../../../graph/batch.ts";
import type { Weight } from "../../../graph/graph.ts";
import { unpackOf } from "../unpack/table.ts";
import type { WeightPart } from "../weight-layout.ts";
import { gateText } from "./elementwise.ts";
import { type Kernel, makeKernel } from "./kernel.ts";
import { type BehindText, behindText, each, type FusedMatmul } from "./matmul-few.ts";
import { type MatrixCalls, UNIT } from "./matrix-calls.ts";
import { weightTile } from "./matrix-tiles.ts";
import { TEAM } from "./teams.ts";

/** How the work is divided. */
export interface MatrixShape {
  /** Subgroup matrices of a team: outputs x tokens. */
  readonly ownOutputs: number;
  readonly ownTokens: number;
  /** Teams of a workgroup: outputs x tokens. */
  readonly outputTeams: number;
  readonly tokenTeams: number;
  /** Columns that are staged at a time. */
  readonly depth: number;
  /** The most tokens of a batch that it is for; undefined: any number. More where the next shape would be too few tiles. */
  readonly most?: number;
}

/** By the number of tokens: the smaller the tile, the more workgroups there are for a large GPU. Measured on an NVIDIA H200. */
export const matrixShapes: readonly MatrixShape[] = [
  { ownOutputs: 2, ownTokens: 2, outputTeams: 2, tokenTeams: 2, depth: 64, most: 192 },
  { ownOutputs: 4, ownTokens: 2, outputTeams: 2, tokenTeams: 2, depth: 64, most: 320 },
  { ownOutputs: 4, ownTokens: 4, outputTeams: 2, tokenTeams: 2, depth: 64 },
];

/** Of types of 8 bits and more. */
export const wideMatrixShapes: readonly MatrixShape[] = [
  { ownOutputs: 2, ownTokens: 2, outputTeams: 2, tokenTeams: 2, depth: 64, most: 192 },
  { ownOutputs: 4, ownTokens: 2, outputTeams: 2, tokenTeams: 4, depth: 64 },
];

/** Tokens of a tile. */
function tokensOf({ ownTokens, tokenTeams }: MatrixShape): number {
  return ownTokens * tokenTeams * UNIT;
}

/** One kernel for each shape, for the batch sizes that it is for, from `least` tokens on. */
export function matmulMatricesKernels(
  matmul: FusedMatmul,
  part: WeightPart,
  partNumber: number,
  matrices: Matrices,
  least: number,
): Kernel[] {
  const { weight } = matmul.matmuls[0]!;
  const shapes = shapesFor(weight, matrices);
  /** The most tokens for each shape. */
  const ends = shapes.map(({ most = Infinity }, i) => {
    const larger = shapes[i + 1];
    return larger ? Math.max(most, fewestTokens(larger, part.rows) - 1) : Infinity;
  });
  return shapes.flatMap((shape, i) => {
    const rows = [Math.max(least, 1 + (ends[i - 1] ?? 0)), ends[i]!] as const;
    if (rows[1] < rows[0]) return [];
    return [matmulMatricesKernel(matmul, part, partNumber, shape, matrices.calls, rows)];
  });
}

/** Workgroups that keep a large GPU busy: with fewer, smaller tiles are faster. Measured on an NVIDIA H200, which has 132 cores. */
const ENOUGH_GROUPS = 192;

/** From how many tokens on a matrix of so many rows has enough tiles of this shape. */
function fewestTokens(shape: MatrixShape, rows: number): number {
  const across = Math.ceil(rows / (shape.ownOutputs * shape.outputTeams * UNIT));
  return tokensOf(shape) * (Math.ceil(ENOUGH_GROUPS / across) - 1) + 1;
}

/** The use of matrix units. */
export interface Matrices {
  readonly shapes: readonly MatrixShape[];
  readonly wideShapes: readonly MatrixShape[];
  readonly calls: MatrixCalls;
  /** Workgroup memory. */
  readonly bytes: number;
}

/** Of types with so many bits per value: their tiles take more loads and fewer instructions to unpack. */
const WIDE_BITS = 8;

/** The shapes for a weight, as deep as its fast unpacking needs, where there is memory for that. */
function shapesFor(
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

/** Whether the columns are a multiple of the depth of every shape. */
export function hasMatrices(
  { matmuls }: Pick<FusedMatmul, "matmuls">,
  matrices: Matrices,
): boolean {
  const { weight } = matmuls[0]!;
  return shapesFor(weight, matrices).every(({ depth }) => weight.shape[1]! % depth === 0);
}

/** This shape, or one of less depth, that fits the workgroup memory. */
export function fittingMatrices(shape: MatrixShape, bytes: number): MatrixShape | undefined {
  const { depth } = shape;
  const outputs = shape.ownOutputs * shape.outputTeams * UNIT;
  const sums = shape.outputTeams * shape.tokenTeams * UNIT * UNIT * 4;
  if (outputs * pitchOf(depth) * 2 + sums <= bytes) return shape;
  return depth > 2 * UNIT ? fittingMatrices({ ...shape, depth: depth / 2 }, bytes) : undefined;
}

/** Elements from a row of a tile to the next: padded, so that rows do not begin in the same bank. */
function pitchOf(depth: number): number {
  return depth + 8;
}

function matmulMatricesKernel(
  matmul: FusedMatmul,
  part: WeightPart,
  partNumber: number,
  shape: MatrixShape,
  calls: MatrixCalls,
  [minRows, maxRows]: readonly [number, number],
): Kernel {
  const { x, matmuls, gate } = matmul;
  const { weight, out } = matmuls[0]!;
  const { depth } = shape;
  const tileRows = shape.ownOutputs * shape.outputTeams * UNIT;
  /** Of the tile; half of its rows are of gate, the other half of up. */
  const outputs = gate ? tileRows / 2 : tileRows;
  const tokens = tokensOf(shape);
  const size = shape.outputTeams * shape.tokenTeams * TEAM;
  const pitch = pitchOf(depth);
  const tile = { depth, pitch, size, cols: x.cols };
  const source =
    matmuls.length > 1
      ? ({ kind: "stack", weight } as const)
      : ({ kind: "weight", weight, part: partNumber } as const);
  const own = rowOf(shape, part.rows, gate !== undefined);
  const weights = weightTile(weight, { source, row: own }, { ...tile, tileRows });
  const left = (t: number): string =>
    calls.load(
      "Left",
      "&x",
      `(min((firstToken + ownToken) / ${UNIT}u + ${t}u, (tokenCount - 1u) / ${UNIT}u) * ${x.cols / UNIT}u + ahead / ${UNIT}u) * ${UNIT * UNIT}u`,
      "row",
      UNIT,
    );
  const behind = behindText(matmul, part);
  const total = gate ? part.rows / 2 : part.rows;
  const names = [weight.dtype.name, gate && "gate", matmul.add && "add"].filter(Boolean).join(" ");
  return makeKernel({
    name: `matmul-matrices ${tileRows}x${tokens} ${names} [${part.rows}, ${x.cols}]`,
    bindings: [
      ...weights.bindings,
      { name: "x", type: "f16", source: { kind: "rounded" } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      ...behind.bindings,
    ],
    quiet: ["chromium.subgroup_matrix_uniformity"], // the numbers of a team are uniform in its lanes
    enables: [calls.enables],
    size,
    declarations: `${weights.declarations}
var<workgroup> weightTile: array<f16, ${tileRows * pitch}>; // [output][column]
var<workgroup> sumTile: array<f32, ${(size / TEAM) * UNIT * UNIT}>; // of each team: [token][output]
${calls.types}${behind.declarations}`,
    rows: out.rows,
    minRows,
    maxRows,
    grid: (count) => [Math.ceil(total / outputs), Math.ceil(count / tokens), 1],
    body: `
  let tokenCount = batch[${countOf(out.rows)}u];
  let firstOutput = group.x * ${outputs}u;
  let firstToken = group.y * ${tokens}u;
  let team = lane / ${TEAM}u;
  let ownOutput = (team % ${shape.outputTeams}u) * ${shape.ownOutputs * UNIT}u;
  let ownToken = (team / ${shape.outputTeams}u) * ${shape.ownTokens * UNIT}u;
  ${units(shape, (o, t) => `var sums${o}_${t}: Sums;`)}
  var next = 0u;
  ${weights.load("var ")}
  var ahead = 0u;
  ${each(shape.ownTokens, (t) => `var left${t} = ${left(t)};`)}
  for (var start = 0u; start < ${x.cols}u; start += ${depth}u) {
    ${weights.store}
    workgroupBarrier();
    next = min(start + ${depth}u, ${x.cols - depth}u); // after the last, it again
    ${weights.load("")}
    for (var column = 0u; column < ${depth}u; column += ${UNIT}u) {
      ${each(shape.ownOutputs, (o) => `let right${o} = ${calls.load("Right", "&weightTile", `((ownOutput + ${o * UNIT}u) * ${pitch / 8}u + column / 8u) * 8u`, "col", pitch)};`)}
      ahead = min(start + column + ${UNIT}u, ${x.cols - UNIT}u);
      ${each(shape.ownTokens, (t) => `let now${t} = left${t}; left${t} = ${left(t)};`)}
      ${units(shape, (o, t) => `sums${o}_${t} = ${calls.multiply(`now${t}`, `right${o}`, `sums${o}_${t}`)};`)}
    }
    workgroupBarrier();
  }
  ${storesText(shape, gate, total, behind, calls)}`,
  });
}

/** The row of the matrix that row `r` of a tile is: where there are gate and up, each team has rows of both. */
function rowOf(shape: MatrixShape, rows: number, gated: boolean): (r: string) => string {
  if (!gated) return (r) => `min(firstOutput + ${r}, ${rows - 1}u)`;
  const own = shape.ownOutputs * UNIT;
  const half = own / 2;
  return (r) =>
    `(min(firstOutput + (${r}) / ${own}u * ${half}u + (${r}) % ${half}u, ${rows / 2 - 1}u) + select(0u, ${rows / 2}u, (${r}) % ${own}u >= ${half}u))`;
}

/** Stores all sums of a team through workgroup memory, 16 x 16 at a time, since tiles at the edges have padding. */
function storesText(
  shape: MatrixShape,
  gate: FusedMatmul["gate"],
  outputs: number,
  behind: BehindText,
  calls: MatrixCalls,
): string {
  const perLane = (UNIT * UNIT) / TEAM;
  const own = gate ? shape.ownOutputs / 2 : shape.ownOutputs;
  const through = (sums: string, text: string): string => `
  ${calls.store("&sumTile", `team * ${UNIT * UNIT}u`, sums, UNIT)};
  workgroupBarrier();
  ${text}
  workgroupBarrier();`;
  const item = (i: number): string => `sumTile[team * ${UNIT * UNIT}u + ${i * TEAM}u + member]`;
  const stores = (o: number, t: number): string => {
    const put = each(perLane, (i) => {
      const value = gate ? gateText(gate.activation, `gate${i}`, item(i)) : item(i);
      return `{
    let output = ${gate ? "teamOutput" : "firstOutput + ownOutput"} + ${o * UNIT}u + member % ${UNIT}u;
    let token = firstToken + ownToken + ${t * UNIT + (i * TEAM) / UNIT}u + member / ${UNIT}u;
    if (output < ${outputs}u && token < tokenCount) { put(token, output, ${value}${behind.restAt("token", "output")}); }
  }`;
    });
    if (!gate) return through(`sums${o}_${t}`, put);
    return `{
  ${each(perLane, (i) => `var gate${i} = 0.0;`)}
  ${through(
    `sums${o}_${t}`,
    each(perLane, (i) => `gate${i} = ${item(i)};`),
  )}
  ${through(`sums${o + own}_${t}`, put)}
  }`;
  };
  return `
  let member = lane % ${TEAM}u;
  ${gate ? "let teamOutput = firstOutput + ownOutput / 2u;" : ""}
  ${each(shape.ownTokens, (t) => each(own, (o) => stores(o, t)))}`;
}

function units(shape: MatrixShape, text: (o: number, t: number) => string): string {
  return each(shape.ownTokens, (t) => each(shape.ownOutputs, (o) => text(o, t)));
}
