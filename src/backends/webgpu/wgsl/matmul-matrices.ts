// matmul for many tokens on matrix units (Chromium's experimental subgroup matrices): a workgroup computes a tile of outputs
// x tokens. Weights are unpacked into workgroup memory as half floats, once for all tokens of the tile; activations, which
// were rounded to half floats before (round-activations.ts), are loaded as whole matrices (matrix-tiles.ts). Sums are float32.
//
// A subgroup has all outputs of the tile, or many, and few tokens: a driver loads a matrix from workgroup memory with one instruction, and one from
// memory with four slow ones. Where a matrix has few tiles, half of the subgroups of a workgroup have the first half of the columns, and the
// others the second; their sums are added at the end. Whether that is so depends on the matrix alone: a prompt has the same bits in
// batches of any size.
//
// Quantized weights and activations lose their last bits as half floats: docs/journal/gpu.md has the errors.

import { countOf } from "../../../graph/batch.ts";
import type { Rows, Weight } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { gateText } from "./elementwise.ts";
import { type Binding, type Grid, type Kernel, makeKernel } from "./kernel.ts";
import { each } from "./matmul-chunks.ts";
import { type BehindText, behindText, type FusedMatmul } from "./matmul-gemv.ts";
import { type MatrixCalls, UNIT } from "./matrix-calls.ts";
import {
  type Matrices,
  type MatrixShape,
  memoryOf,
  pitchOf,
  rangesOf,
  rowsOf,
  type SplitShape,
  shapesFor,
  splitOf,
  sumsPitch,
  tokensOf,
} from "./matrix-shapes.ts";
import { type TileRows, weightTile } from "./matrix-tiles.ts";
import { SUBGROUP } from "./subgroups.ts";

/** The kernels of a matmul for batches of `least` tokens on: of each shape, for the batch sizes that it is the fastest for. */
export function matmulMatricesKernels(
  matmul: FusedMatmul,
  part: WeightPart,
  partNumber: number,
  matrices: Matrices,
  least: number,
): Kernel[] {
  const { weight } = matmul.matmuls[0]!;
  const shapes = shapesFor(weight, matrices);
  const split = splitOf(part.rows, weight.shape[1]!, shapes);
  return rangesOf(shapes, part.rows, least).map(({ shape, rows }) =>
    matmulMatricesKernel(matmul, part, partNumber, { ...shape, split }, matrices.calls, rows),
  );
}

function matmulMatricesKernel(
  matmul: FusedMatmul,
  part: WeightPart,
  partNumber: number,
  shape: SplitShape,
  calls: MatrixCalls,
  [minRows, maxRows]: readonly [number, number],
): Kernel {
  const { x, matmuls, gate } = matmul;
  const { weight, out } = matmuls[0]!;
  const tokens = tokensOf(shape);
  const source =
    matmuls.length > 1
      ? ({ kind: "stack", weight } as const)
      : ({ kind: "weight", weight, part: partNumber } as const);
  const behind = behindText(matmul, part);
  const total = gate ? part.rows / 2 : part.rows;
  const names = [weight.dtype.name, gate && "gate", matmul.add && "add"].filter(Boolean).join(" ");
  return matrixKernel(
    {
      name: `matmul-matrices ${rowsOf(shape)}x${tokens} ${names} [${part.rows}, ${x.cols}]`,
      weight,
      source,
      isGated: gate !== undefined,
      row: rowOf(shape, part.rows, gate !== undefined),
      outputs: total,
      bindings: [{ name: "batch", type: "u32", source: { kind: "batch" } }, ...behind.bindings],
      declarations: behind.declarations,
      rows: out.rows,
      minRows,
      maxRows,
      // Tiles of the same weights are neighbours, so that these are read once.
      grid: (count, outputs) => [Math.ceil(count / tokens), Math.ceil(total / outputs), 1],
      tile: (outputs) => `
  let tokenCount = batch[${countOf(out.rows)}u];
  let firstToken = group.x * ${tokens}u;
  let firstOutput = group.y * ${outputs}u;`,
      value: (first, second) => (gate ? gateText(gate.activation, first, second) : first),
      rest: behind.rest,
      restAt: behind.restAt,
    },
    shape,
    calls,
  );
}

/** A matmul on matrix units: the rows, the tokens by which they are multiplied, and the use of the sums. */
export interface MatrixWork {
  readonly name: string;
  /** [..., columns] */
  readonly weight: Weight;
  readonly source: TileRows["source"];
  /** Half of the rows of a tile belong to gate, the other half to up. */
  readonly isGated: boolean;
  /** WGSL: the row of the matrix that row `r` of a tile is. */
  readonly row: TileRows["row"];
  /** Of the result. */
  readonly outputs: number;
  /** But those of the weights and of the tokens, `x`: matrices of 16 x 16 (matrix-tiles.ts). */
  readonly bindings: readonly Binding[];
  /** `fn put(token, output, ...value [, rest])` stores a result. */
  readonly declarations: string;
  readonly rows: Rows;
  readonly minRows: number;
  readonly maxRows: number;
  /** `outputs`: of a tile. */
  grid(rows: number, outputs: number): Grid;
  /** WGSL that sets `firstOutput`, `firstToken`, a multiple of 16, and `tokenCount`, the end of the tokens that there are. */
  tile(outputs: number): string;
  /** Tiles are often not full: subgroups that have no token of one multiply nothing. */
  readonly skips?: boolean;
  /** WGSL of the arguments of put() that are made of a sum, or of those of gate and up. */
  value(first: string, second: string): string;
  readonly rest: BehindText["rest"];
  readonly restAt: BehindText["restAt"];
}

export function matrixKernel(work: MatrixWork, shape: SplitShape, calls: MatrixCalls): Kernel {
  const { weight, source, isGated } = work;
  const cols = weight.shape.at(-1)!;
  const { depth, split, ahead } = shape;
  const tileRows = rowsOf(shape);
  const outputs = isGated ? tileRows / 2 : tileRows;
  const lanes = shape.outputSubgroups * shape.tokenSubgroups * SUBGROUP;
  const tile = { tileRows, depth, pitch: pitchOf(depth), lanes, cols };
  const weights = weightTile(weight, { source, row: work.row }, tile);
  const memory = memoryOf(shape);
  const multiply = multiplyText(shape, cols, calls);
  return makeKernel({
    name: work.name,
    bindings: [
      ...weights.bindings,
      { name: "x", type: "vec4u", source: { kind: "rounded" } },
      ...work.bindings,
    ],
    quiet: ["chromium.subgroup_matrix_uniformity"], // the numbers of a subgroup are uniform in its lanes
    enables: [calls.enables],
    size: lanes * split,
    declarations: `${weights.declarations}
var<workgroup> tile: array<vec4u, ${memory.all}>; // weights: [part of the columns][output][column]; then sums
${calls.types}${work.declarations}`,
    rows: work.rows,
    minRows: work.minRows,
    maxRows: work.maxRows,
    grid: (count) => work.grid(count, outputs),
    body: `${work.tile(outputs)}
  let share = ${split === 1 ? "0u" : `lane / ${lanes}u`}; // the part of the columns
  let worker = ${split === 1 ? "lane" : `lane % ${lanes}u`};
  let subgroup = worker / ${SUBGROUP}u;
  let ownOutput = (subgroup % ${shape.outputSubgroups}u) * ${shape.ownOutputs * UNIT}u;
  let ownToken = (subgroup / ${shape.outputSubgroups}u) * ${shape.ownTokens * UNIT}u;
  let base = share * ${memory.weights / split}u;
  let firstColumn = share * ${cols / split}u;
  // A driver that knew the number of turns would unroll the whole loop, which takes it seconds.
  let end = select(0u, ${cols / split}u, tokenCount > 0u);
  ${units(shape, (o, t) => `var sums${o}_${t} = Sums();`)}
  ${each(shape.ownTokens, (t) => `let tokens${t} = min((firstToken + ownToken) / ${UNIT}u + ${t}u, (tokenCount - 1u) / ${UNIT}u) * ${cols / UNIT}u;`)}
  ${each(ahead, (slot) => each(shape.ownTokens, (t) => `var left${t}_${slot} = ${leftText(t, `firstColumn + ${slot * UNIT}u`, cols, calls)};`))}
  ${weights.load("var ", "firstColumn")}
  ${loopText(
    shape,
    cols / split,
    `let column = firstColumn + start;
    ${weights.store("tile", "base", "column")}
    workgroupBarrier();
    ${weights.load("", `min(column + ${depth}u, ${cols - depth}u)`)}
    ${work.skips ? `if (firstToken + ownToken < tokenCount) {${multiply}}` : multiply}
    workgroupBarrier();`,
  )}
  ${storesText(shape, memory.across, work, calls)}`,
  });
}

/** Runs `body` for each tile: its first column, of those of the part, is `start`. */
function loopText({ depth, turns }: MatrixShape, columns: number, body: string): string {
  if (turns === undefined) {
    return `for (var start = 0u; start < end; start += ${depth}u) {
    ${body}
  }`;
  }
  const mayEnd = (columns / depth) % turns !== 0;
  return `let stride = select(${turns * depth}u, 1u, ${NEVER}); // which a driver does not know, so that it writes out no more
  for (var first = 0u; first < end; first += stride) {
    ${each(
      turns,
      (turn) => `{
    let start = first + ${turn * depth}u;
    ${turn > 0 && mayEnd ? "if (start >= end) { break; }" : ""}
    ${body}
    }`,
    )}
  }`;
}

/** WGSL: a false condition, which no driver knows to be false. */
const NEVER = "tokenCount == 0xffffffffu";

/** Loads matrix `t` of the subgroup's tokens at a column; after the last, that again. */
function leftText(t: number, column: string, cols: number, calls: MatrixCalls): string {
  const at = `(tokens${t} + min(${column}, ${cols - UNIT}u) / ${UNIT}u) * ${(UNIT * UNIT) / 8}u`;
  return calls.load("Left", "&x", at, "row", UNIT / 8, "vec4u");
}

/** Multiplies the tile, whose first column is `column`. */
function multiplyText(shape: MatrixShape, cols: number, calls: MatrixCalls): string {
  const { depth, ahead, ownOutputs, ownTokens } = shape;
  const pitch = pitchOf(depth) / 8;
  const right = (o: number, step: number): string => {
    const at = `base + (ownOutput + ${o * UNIT}u) * ${pitch}u + ${(step * UNIT) / 8}u`;
    return calls.load("Right", "&tile", at, "col", pitch, "vec4u");
  };
  return each(depth / UNIT, (step) => {
    const slot = step % ahead;
    const next = (t: number): string =>
      leftText(t, `column + ${(step + ahead) * UNIT}u`, cols, calls);
    return `{
    ${each(ownOutputs, (o) => `let right${o} = ${right(o, step)};`)}
    ${each(ownTokens, (t) => `let now${t} = left${t}_${slot}; left${t}_${slot} = ${next(t)};`)}
    ${units(shape, (o, t) => `sums${o}_${t} = ${calls.multiply(`now${t}`, `right${o}`, `sums${o}_${t}`)};`)}
    }`;
  });
}

/**
 * The row of the matrix for row `r` of a tile, of `rows`: with gate and up, each subgroup has rows of both, and those of up
 * are `apart` behind those of gate.
 */
export function rowOf(
  shape: MatrixShape,
  rows: number,
  gated: boolean,
  apart: number = rows / 2,
): (r: string) => string {
  if (!gated) return (r) => `min(firstOutput + ${r}, ${rows - 1}u)`;
  const own = shape.ownOutputs * UNIT;
  const half = own / 2;
  return (r) =>
    `(min(firstOutput + (${r}) / ${own}u * ${half}u + (${r}) % ${half}u, ${rows / 2 - 1}u) + select(0u, ${apart}u, (${r}) % ${own}u >= ${half}u))`;
}

/** Outputs of a lane whose residuals are loaded before the first is added, at most. */
const RESTS = 4;

/**
 * Stores all sums through workgroup memory, `across` matrices of each subgroup at a time, since tiles at the edges have padding. Those of
 * the parts of the columns are added up there. With gate and up, the second half of these matrices has the same outputs as the first. Lanes
 * side by side have outputs side by side. Rounds are a loop, which is faster for q, k and v and slower for gate and up than text for each
 * (docs/journal/gpu-kernels.md).
 */
function storesText(
  shape: SplitShape,
  across: number,
  { isGated, outputs, value, rest: restOf, restAt }: MatrixWork,
  calls: MatrixCalls,
): string {
  const { ownOutputs, ownTokens, outputSubgroups, split } = shape;
  const subgroups = outputSubgroups * shape.tokenSubgroups;
  const pitch = sumsPitch(across);
  /** Of a subgroup and a token that are stored at a time: matrices, and outputs. */
  const matrices = isGated ? across / 2 : across;
  const width = matrices * UNIT;
  const ownMatrices = isGated ? ownOutputs / 2 : ownOutputs;
  const groups = ownMatrices / matrices;
  const store = (o: number, t: number, place: number): string =>
    `${calls.store("&tile", `(lane / ${SUBGROUP}u) * ${(UNIT * pitch) / 4}u + ${(place * UNIT) / 4}u`, `sums${o}_${t}`, pitch / 4, "vec4u")};`;
  const at = (row: string, column: string): string => {
    const word = `(${row}) * ${pitch}u + ${column}`;
    return `bitcast<f32>(tile[(${word}) / 4u][(${word}) % 4u])`;
  };
  const sum = (row: string, column: string): string =>
    split === 1
      ? at(row, column)
      : `(${at(row, column)} + ${at(`${row} + ${subgroups * UNIT}u`, column)})`;
  const lanes = subgroups * SUBGROUP * split;
  const items = subgroups * UNIT * width;
  const rests = Math.min(RESTS, items / lanes);
  /** Which output item `i` of a lane is, and its residual. */
  const where = (i: number): string => {
    const rest = restAt(`min(token${i}, tokenCount - 1u)`, `min(output${i}, ${outputs - 1}u)`);
    return `let item${i} = item + ${i * lanes}u;
    let row${i} = item${i} / ${width}u; // of all subgroups
    let column${i} = item${i} % ${width}u;
    let output${i} = firstOutput + row${i} / ${UNIT}u % ${outputSubgroups}u * ${ownMatrices * UNIT}u + round % ${groups}u * ${width}u + column${i};
    let token${i} = firstToken + row${i} / ${UNIT * outputSubgroups}u * ${ownTokens * UNIT}u + round / ${groups}u * ${UNIT}u + row${i} % ${UNIT}u;
    ${rest === "" ? "" : `let rest${i} = ${rest.slice(2)};`}`;
  };
  const put = (i: number): string => {
    const [first, second] = [
      sum(`row${i}`, `column${i}`),
      sum(`row${i}`, `column${i} + ${width}u`),
    ];
    return `if (output${i} < ${outputs}u && token${i} < tokenCount) { put(token${i}, output${i}, ${value(first, second)}${restOf(i)}); }`;
  };
  const rounds = ownTokens * groups;
  const cases = Array.from({ length: rounds }, (_, round) => {
    const [t, o] = [Math.floor(round / groups), (round % groups) * matrices];
    const halves = isGated ? [0, ownMatrices] : [0];
    const stores = halves.flatMap((from, half) =>
      Array.from({ length: matrices }, (_, i) => store(from + o + i, t, half * matrices + i)),
    );
    return `${round === rounds - 1 ? "default" : `case ${round}u`}: { ${stores.join("\n    ")} }`;
  });
  return `
  let onward = select(1u, ${rounds}u, ${NEVER});
  for (var round = 0u; round < ${rounds}u; round += onward) {
    switch (round) {
    ${cases.join("\n    ")}
    }
    workgroupBarrier();
    for (var item = lane; item < ${items}u; item += ${rests * lanes}u) {
    ${each(rests, where)}
    ${each(rests, put)}
    }
    workgroupBarrier();
  }`;
}

function units(shape: MatrixShape, text: (o: number, t: number) => string): string {
  return each(shape.ownTokens, (t) => each(shape.ownOutputs, (o) => text(o, t)));
}
