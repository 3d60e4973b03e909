// matmul for many tokens on matrix units (Chromium's experimental subgroup matrices): a workgroup computes a tile of outputs
// x tokens. Weights are unpacked into workgroup memory as half floats, once for all tokens of the tile; activations, which
// were rounded to half floats before (round-activations.ts), are copied beside them (matrix-tiles.ts). Sums are float32.
//
// Quantized weights and activations lose their last bits as half floats: docs/gpu.md says how much.

import { countOf } from "../../../graph/batch.ts";
import type { NodeOf } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { type Binding, type Kernel, makeKernel } from "./kernel.ts";
import { tokenTile, weightTile } from "./matrix-tiles.ts";
import { MATVEC_TOKENS } from "./matvec.ts";
import { TEAM } from "./teams.ts";

/** Rows and columns of a subgroup matrix. */
const UNIT = 16;

/** The calls that load and store matrices. In newer versions the order of elements is part of the name. */
export interface MatrixCalls {
  load(type: string, from: string, at: string, order: "row" | "col", pitch: number): string;
  store(to: string, at: string, value: string, pitch: number): string;
}

export const namedCalls: MatrixCalls = {
  load: (type, from, at, order, pitch) =>
    `subgroupMatrixLoad<${type}, ${order}_major>(${from}, ${at}, ${pitch}u)`,
  store: (to, at, value, pitch) =>
    `subgroupMatrixStore<row_major>(${to}, ${at}, ${value}, ${pitch}u)`,
};

const flaggedCalls: MatrixCalls = {
  load: (type, from, at, order, pitch) =>
    `subgroupMatrixLoad<${type}>(${from}, ${at}, ${order === "col"}, ${pitch}u)`,
  store: (to, at, value, pitch) => `subgroupMatrixStore(${to}, ${at}, ${value}, false, ${pitch}u)`,
};

/** The calls that this device's compiler knows, found by compiling a few lines. */
export async function matrixCallsOf(device: GPUDevice): Promise<MatrixCalls> {
  const type = "subgroup_matrix_left<f16, 16, 16>";
  device.pushErrorScope("validation");
  device.createShaderModule({
    code: `enable f16;
enable chromium_experimental_subgroup_matrix;
var<workgroup> tile: array<f16, 256>;
@compute @workgroup_size(32) fn main() { let m = ${namedCalls.load(type, "&tile", "0u", "row", 16)}; }`,
  });
  return (await device.popErrorScope()) ? flaggedCalls : namedCalls;
}

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
}

/** For small batches, and for prompts. */
export const matrixShapes: readonly MatrixShape[] = [
  { ownOutputs: 2, ownTokens: 2, outputTeams: 4, tokenTeams: 1, depth: 64 },
  { ownOutputs: 4, ownTokens: 2, outputTeams: 2, tokenTeams: 4, depth: 64 },
];

/** Tokens of a tile. */
function tokensOf({ ownTokens, tokenTeams }: MatrixShape): number {
  return ownTokens * tokenTeams * UNIT;
}

/** One kernel for each shape, for the batch sizes whose smallest sufficient tile is its own. */
export function matmulMatricesKernels(
  node: NodeOf<"matmul">,
  parts: readonly WeightPart[],
  part: number,
  { shapes, calls }: Matrices,
): Kernel[] {
  let fewest = MATVEC_TOKENS + 1;
  return shapes.map((shape, i) => {
    const most = i < shapes.length - 1 ? tokensOf(shape) : Infinity;
    const kernel = matmulMatricesKernel(node, parts, part, shape, calls, [fewest, most]);
    fewest = most + 1;
    return kernel;
  });
}

/** The use of matrix units. */
export interface Matrices {
  readonly shapes: readonly MatrixShape[];
  readonly calls: MatrixCalls;
}

/** Whether the columns are a multiple of the depth of every shape. */
export function hasMatrices({ x }: NodeOf<"matmul">, { shapes }: Matrices): boolean {
  return shapes.every(({ depth }) => x.cols % depth === 0);
}

/** This shape, or one of less depth, that fits the workgroup memory. */
export function fittingMatrices(shape: MatrixShape, bytes: number): MatrixShape | undefined {
  const { depth } = shape;
  const outputs = shape.ownOutputs * shape.outputTeams * UNIT;
  const tokens = tokensOf(shape);
  const sums = shape.outputTeams * shape.tokenTeams * UNIT * UNIT * 4;
  if ((outputs + tokens) * pitchOf(depth) * 2 + sums <= bytes) return shape;
  return depth > 2 * UNIT ? fittingMatrices({ ...shape, depth: depth / 2 }, bytes) : undefined;
}

/** Elements from a row of a tile to the next: padded, so that rows do not begin in the same bank. */
function pitchOf(depth: number): number {
  return depth + 8;
}

function matmulMatricesKernel(
  node: NodeOf<"matmul">,
  parts: readonly WeightPart[],
  part: number,
  shape: MatrixShape,
  calls: MatrixCalls,
  [minRows, maxRows]: readonly [number, number],
): Kernel {
  const { x, weight, out } = node;
  const { rows } = parts[part]!;
  const { depth } = shape;
  const outputs = shape.ownOutputs * shape.outputTeams * UNIT;
  const tokens = tokensOf(shape);
  const size = shape.outputTeams * shape.tokenTeams * TEAM;
  const pitch = pitchOf(depth);
  const tile = { depth, pitch, size, cols: x.cols };
  const weights = weightTile(weight, part, rows, { ...tile, tileRows: outputs });
  const inputs = tokenTile({ ...tile, tileRows: tokens });
  return makeKernel({
    name: `matmul-matrices ${outputs}x${tokens} ${weight.dtype.name} [${rows}, ${x.cols}]`,
    bindings: [...weights.bindings, ...inputs.bindings, ...valueBindings(node)],
    quiet: ["chromium.subgroup_matrix_uniformity"], // the numbers of a team are uniform in its lanes
    enables: ["f16, subgroups, chromium_experimental_subgroup_matrix"],
    size,
    declarations: `${weights.declarations}
var<workgroup> weightTile: array<f16, ${outputs * pitch}>; // [output][column]
var<workgroup> tokenTile: array<f16, ${tokens * pitch}>; // [token][column]
var<workgroup> sumTile: array<f32, ${(size / TEAM) * UNIT * UNIT}>; // of each team: [token][output]
alias Left = subgroup_matrix_left<f16, ${UNIT}, ${UNIT}>;
alias Right = subgroup_matrix_right<f16, ${UNIT}, ${UNIT}>;
alias Sums = subgroup_matrix_result<f32, ${UNIT}, ${UNIT}>;`,
    rows: out.rows,
    minRows,
    maxRows,
    grid: (count) => [Math.ceil(rows / outputs), Math.ceil(count / tokens), 1],
    body: `
  let tokenCount = batch[${countOf[out.rows]}u];
  let firstOutput = group.x * ${outputs}u;
  let firstToken = group.y * ${tokens}u;
  let team = lane / ${TEAM}u;
  let ownOutput = (team % ${shape.outputTeams}u) * ${shape.ownOutputs * UNIT}u;
  let ownToken = (team / ${shape.outputTeams}u) * ${shape.ownTokens * UNIT}u;
  ${units(shape, (o, t) => `var sums${o}_${t}: Sums;`)}
  var next = 0u;
  ${weights.load("var ")}
  ${inputs.load("var ")}
  for (var start = 0u; start < ${x.cols}u; start += ${depth}u) {
    ${weights.store}
    ${inputs.store}
    workgroupBarrier();
    next = min(start + ${depth}u, ${x.cols - depth}u); // after the last, it again
    ${weights.load("")}
    ${inputs.load("")}
    for (var column = 0u; column < ${depth}u; column += ${UNIT}u) {
      ${count(shape.ownTokens, (t) => `let left${t} = ${calls.load("Left", "&tokenTile", `(ownToken + ${t * UNIT}u) * ${pitch}u + column`, "row", pitch)};`)}
      ${count(shape.ownOutputs, (o) => `let right${o} = ${calls.load("Right", "&weightTile", `(ownOutput + ${o * UNIT}u) * ${pitch}u + column`, "col", pitch)};`)}
      ${units(shape, (o, t) => `sums${o}_${t} = subgroupMatrixMultiplyAccumulate(left${t}, right${o}, sums${o}_${t});`)}
    }
    workgroupBarrier();
  }
  ${units(shape, (o, t) => storeText(node, parts[part]!, calls, o, t))}`,
  });
}

function valueBindings({ out, bias }: NodeOf<"matmul">): Binding[] {
  const bindings: Binding[] = [
    { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    { name: "batch", type: "u32", source: { kind: "batch" } },
  ];
  if (bias) {
    bindings.push({ name: "bias", type: "f32", source: { kind: "weight", weight: bias, part: 0 } });
  }
  return bindings;
}

/** Stores a matrix of sums through workgroup memory, since tiles at the edges have padding. */
function storeText(
  { out, bias }: NodeOf<"matmul">,
  { rowStart, rows }: WeightPart,
  calls: MatrixCalls,
  o: number,
  t: number,
): string {
  const perLane = (UNIT * UNIT) / TEAM;
  return `
  ${calls.store("&sumTile", `team * ${UNIT * UNIT}u`, `sums${o}_${t}`, UNIT)};
  workgroupBarrier();
  for (var i = 0u; i < ${perLane}u; i++) {
    let item = i * ${TEAM}u + lane % ${TEAM}u;
    let output = firstOutput + ownOutput + ${o * UNIT}u + item % ${UNIT}u;
    let token = firstToken + ownToken + ${t * UNIT}u + item / ${UNIT}u;
    if (output < ${rows}u && token < tokenCount) {
      result[token * ${out.cols}u + ${rowStart}u + output] = sumTile[team * ${UNIT * UNIT}u + item]${bias ? ` + bias[${rowStart}u + output]` : ""};
    }
  }
  workgroupBarrier();`;
}

function units(shape: MatrixShape, text: (o: number, t: number) => string): string {
  return count(shape.ownTokens, (t) => count(shape.ownOutputs, (o) => text(o, t)));
}

function count(many: number, text: (i: number) => string): string {
  return Array.from({ length: many }, (_, i) => text(i)).join("\n  ");
}
