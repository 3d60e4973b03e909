// matmul_id with weights of the types that have a LaneDot (unpack/lanes.ts): matmuls of (token, slot) pairs with the matrices of their
// experts. Activations are prepared before (prepare-activations.ts), a record for each token, or for each pair where slots have
// different ones.
//
// In small batches a workgroup computes rows of one pair, as matmul-gemv.ts of one token. In larger ones it computes them for a tile of
// pairs that have the same expert (group-pairs.ts), and every weight that it reads serves all of them, as in matmul-small-batch.ts. The sums
// of a pair are added up in the same order either way, so a token's result has the same bits in batches of any size. A batch of one token
// has fused kernels (experts-fused.ts), of the same bits as well.

import type { NodeOf, Weight } from "../../../graph/graph.ts";
import type { LaneDot } from "../unpack/unpack.ts";
import type { WeightPart } from "../weight-layout.ts";
import { countAt, expertText, MOST_TILE, mostTiles, pairAt, tileAt } from "./group-pairs.ts";
import { type Binding, type Grid, type Kernel, makeKernel } from "./kernel.ts";
import { dotsText, each, loopText } from "./matmul-chunks.ts";
import { laneDotOf, type MatmulContext, type MatmulShape } from "./matmul-gemv.ts";
import { productText, sumsText, tileLoopText } from "./matmul-small-batch.ts";
import { groupGrid, MOST_GROUPS } from "./matvec.ts";
import { preparedLayout } from "./prepare-activations.ts";
import type { RecordLoads } from "./record.ts";
import { SUBGROUP } from "./subgroups.ts";

/** A matmul_id that these kernels compute. */
export interface ExpertMatmul {
  readonly node: NodeOf<"matmul_id">;
  /** [experts * outputs, cols] */
  readonly matrix: Weight;
  readonly lane: LaneDot;
  /** So many experts are in GPU memory (experts/expert-slots.ts); undefined: all. */
  readonly slotCount: number | undefined;
}

/** The rows of all experts, one after the other. */
export function asMatrix(weight: Weight): Weight {
  const [experts, outputs, cols] = weight.shape as [number, number, number];
  return { ...weight, shape: [experts * outputs, cols] };
}

/** undefined: these kernels cannot compute it. */
export function expertMatmulOf(
  node: NodeOf<"matmul_id">,
  workgroupBytes: number,
  slotCount: number | undefined,
): ExpertMatmul | undefined {
  const matrix = asMatrix(node.weight);
  const lane = laneDotOf(matrix, workgroupBytes);
  return lane && { node, matrix, lane, slotCount };
}

/** Pairs up to which each is computed by itself: with the usual 64 experts and more, few of them have the same one. */
const FEW_PAIRS = 64;

/** The most tokens whose pairs are computed one by one. */
export function fewTokens({ routes }: NodeOf<"matmul_id">): number {
  return Math.max(1, Math.floor(FEW_PAIRS / (routes.cols / 2)));
}

/** Numbers of pairs that there are loops for, in increasing order; the last one is a tile. */
export function tilesOf({ smallBatch }: MatmulContext): readonly number[] {
  return [...new Set(smallBatch.tiles.map((tile) => Math.min(tile, MOST_TILE)))];
}

/** The kernel for one pair at a time, with the experts' rows in one part of the weight. */
export function matmulPairKernel(
  matmul: ExpertMatmul,
  parts: readonly WeightPart[],
  part: number,
  context: MatmulContext,
): Kernel {
  const { node, matrix, lane } = matmul;
  const { rows, subgroups, width, ahead } = shapeOf(matmul, context);
  const text = expertsText(matmul, parts, part, { rows, subgroups, width });
  const { words } = preparedLayout(matrix);
  const size = subgroups * width;
  const { exchange } = context;
  const slots = node.routes.cols / 2;
  const grid = groupGrid(text.groups);
  return makeKernel({
    name: `matmul-experts ${text.name}`,
    bindings: [
      ...text.bindings,
      { name: "routes", type: "f32", source: { kind: "value", value: node.routes } },
    ],
    enables: exchange.enables,
    size,
    declarations: `${exchange.declarations(size)}${dotsText(context.packedDots)}${lane.functions ?? ""}
${exchange.reduce("sumOverSubgroup", width, "sum")}${text.declarations}`,
    rows: node.out.rows,
    maxRows: fewTokens(node),
    sameBits: true,
    grid: (tokens) => grid(tokens * slots),
    body: `
  let index = group.x + group.y * groups.x;
  if (index >= ${text.groups}u) { return; }
  let pair = group.z;
  let expert = ${expertText(node, "pair")};
  ${text.rows}
  let record = ${text.rowOf("pair")} * ${words}u;
  ${loopText(lane, matrix, { rows, split: 1, ahead, width }, "", preparedLoads(matrix))}
  ${each(rows, (j) => `sum${j} = sumOverSubgroup(sum${j}, lane);`)}
  if (member == 0u) {
    ${each(rows, (j) => `put(pair, expert, first + ${j}u, index * ${text.groupRows}u + subgroup * ${rows}u + ${j}u, sum${j});`)}
  }`,
  });
}

/** The kernel for tiles of pairs. */
export function matmulTileKernel(
  matmul: ExpertMatmul,
  parts: readonly WeightPart[],
  part: number,
  context: MatmulContext,
): Kernel {
  const { node, matrix, lane } = matmul;
  const { subgroups, width } = shapeOf(matmul, context);
  const { rows } = context.smallBatch;
  const tiles = tilesOf(context);
  const tile = tiles.at(-1)!;
  const text = expertsText(matmul, parts, part, { rows, subgroups, width });
  const size = subgroups * width;
  const sums = rows * tile;
  const { exchange } = context;
  const { words } = preparedLayout(matrix);
  const slots = node.routes.cols / 2;
  const across = Math.min(text.groups, MOST_GROUPS);
  const loops = tiles.map((count) => tileLoopText(lane, matrix, rows, count, 1, width));
  const chosen = tiles
    .map((count, i) =>
      i < tiles.length - 1
        ? `if (count <= ${count}u) {${loops[i]}\n  } else `
        : `{${loops[i]}\n  }`,
    )
    .join("");
  return makeKernel({
    name: `matmul-experts x${tile} ${text.name}`,
    bindings: [...text.bindings, { name: "tiles", type: "u32", source: { kind: "tiles" } }],
    enables: exchange.enables,
    size,
    declarations: `${dotsText(context.packedDots)}${lane.smallBatch ? lane.smallBatch.functions + productText : (lane.functions ?? "")}${exchange.sumsDeclarations(size, sums)}
var<workgroup> totals: array<f32, ${subgroups * sums}>; // [subgroup][pair of the tile][row of the subgroup]${text.declarations}`,
    rows: node.out.rows,
    minRows: fewTokens(node) + 1,
    sameBits: true,
    // Workgroups of the same rows of an expert follow each other, so that they find the weights in the cache.
    grid: (tokens): Grid => [
      mostTiles(tokens * slots, node.weight.shape[0]!, tile),
      across,
      Math.ceil(text.groups / across),
    ],
    body: `
  let index = group.y + group.z * groups.y;
  if (group.x >= tiles[0] || index >= ${text.groups}u) { return; }
  let at = ${tileAt("group.x", tile)};
  let expert = tiles[at];
  let count = tiles[${countAt("at")}];
  ${text.rows}
  ${each(tile, (t) => `let t${t} = ${text.rowOf(`tiles[${pairAt("at", `min(${t}u, count - 1u)`)}]`)} * ${words}u;`)}
  ${sumsText(sums)}
  ${chosen}
  ${exchange.sums(
    sums,
    (i) => `sum${i}`,
    (i) => `totals[(lane / ${width}u) * ${sums}u + ${i}]`,
    size,
    width,
  )}
  workgroupBarrier();
  for (var item = lane; item < ${text.groupRows}u * count; item += ${size}u) {
    let own = item % ${text.groupRows}u;
    let ofSubgroup = own / ${rows}u;
    let ofRow = own % ${rows}u;
    let offset = item / ${text.groupRows}u;
    put(tiles[${pairAt("at", "offset")}], expert, firstOfGroup + own, index * ${text.groupRows}u + own, totals[ofSubgroup * ${sums}u + offset * ${rows}u + ofRow]);
  }`,
  });
}

/** The division of an expert's rows. */
export interface ExpertShape extends Pick<MatmulShape, "rows" | "subgroups" | "ahead"> {
  /** Lanes of a subgroup: where a row has fewer chunks than 32, as many lanes are enough. */
  readonly width: number;
}

const LEAST_WIDTH = 8;

export function shapeOf(
  { node, matrix, lane }: Pick<ExpertMatmul, "node" | "matrix" | "lane">,
  { shapeFor }: MatmulContext,
): ExpertShape {
  const [, outputs, cols] = node.weight.shape as [number, number, number];
  const { rows, subgroups, ahead } = shapeFor(
    outputs * (node.routes.cols / 2),
    cols,
    matrix.dtype.name,
  );
  const chunks = 2 ** Math.ceil(Math.log2(cols / lane.columns));
  const width = Math.max(LEAST_WIDTH, Math.min(SUBGROUP, chunks));
  return { rows, subgroups: (subgroups * SUBGROUP) / width, ahead, width };
}

/** Whether activations are quants with scales. */
const hasScales = ({ dtype }: Weight): boolean => dtype.blockElems > 1;

/** Bindings of prepared activations. */
export function preparedBindings(matrix: Weight): Binding[] {
  const x = { name: "x", type: "vec4u", source: { kind: "rounded" } } as const;
  return hasScales(matrix) ? [x, { ...x, name: "xWords", type: "u32" }] : [x];
}

/** The operands of a lane, of the prepared activations that begin at word `record`. */
export function preparedLoads(matrix: Weight): Pick<RecordLoads, "quants" | "scale"> {
  const { scalesAt } = preparedLayout(matrix);
  return {
    quants: (at) => `x[record / 4u + ${at}]`,
    scale: (at) =>
      hasScales(matrix) ? `bitcast<f32>(xWords[record + ${scalesAt}u + ${at}])` : "0.0",
  };
}

/** The part that both kernels have in common. */
interface ExpertsText {
  readonly name: string;
  /** Workgroups that compute the outputs of an expert, and the rows of each. */
  readonly groups: number;
  readonly groupRows: number;
  readonly bindings: readonly Binding[];
  /** `fn put(pair, expert, row, output, sum)`: stores an output, if `row` of the matrix is in the part and `output` of the expert. */
  readonly declarations: string;
  /** From `expert` and `index`: `member`, `subgroup`, `firstOfGroup`, `first` and r0, r1, ...; ends a workgroup without rows of the part. */
  readonly rows: string;
  /** The record of a pair. */
  rowOf(pair: string): string;
}

function expertsText(
  { node, matrix, lane, slotCount }: ExpertMatmul,
  parts: readonly WeightPart[],
  part: number,
  { rows, subgroups, width }: Omit<ExpertShape, "ahead">,
): ExpertsText {
  const { x, routes, weight, bias, out } = node;
  const [experts, outputs, cols] = weight.shape as [number, number, number];
  const { rowStart, rows: rowCount, narrow } = parts[part]!;
  const groupRows = subgroups * rows;
  const units = cols / lane.unit;
  const source = { kind: "weight", weight, part } as const;
  const bindings: Binding[] = [
    { name: "wide", type: "vec4u", source },
    ...preparedBindings(matrix),
    { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
  ];
  if (narrow)
    bindings.push({ name: "narrow", type: "u32", source: { ...source, plane: "narrow" } });
  if (bias) {
    bindings.push({ name: "bias", type: "f32", source: { kind: "weight", weight: bias, part: 0 } });
  }
  const hasSlots = slotCount !== undefined;
  if (hasSlots) bindings.push({ name: "slots", type: "u32", source: { kind: "slots", routes } });
  const [isSplit, last] = [parts.length > 1, rowStart + rowCount - 1];
  const row = (j: number): string =>
    isSplit
      ? `(clamp(first + ${j}u, ${rowStart}u, ${last}u) - ${rowStart}u)`
      : `min(first + ${j}u, ${last}u)`;
  return {
    name: `${weight.dtype.name} [${experts}, ${outputs}, ${cols}]`,
    groups: Math.ceil(outputs / groupRows),
    groupRows,
    bindings,
    declarations: `
fn put(pair: u32, expert: u32, row: u32, output: u32, sum: f32) {
  if (output < ${outputs}u${isSplit ? ` && row >= ${rowStart}u && row <= ${last}u` : ""}) {
    result[pair * ${outputs}u + output] = sum${bias ? ` + bias[expert * ${outputs}u + output]` : ""};
  }
}`,
    rows: `${hasSlots ? `let place = slots[expert];\n  if (place >= ${slotCount}u) { return; }` : "let place = expert;"}
  let firstOfGroup = place * ${outputs}u + index * ${groupRows}u;
  ${isSplit ? `if (firstOfGroup + ${groupRows}u <= ${rowStart}u || firstOfGroup > ${last}u) { return; }` : ""}
  let member = lane % ${width}u;
  let subgroup = lane / ${width}u;
  let first = firstOfGroup + subgroup * ${rows}u;
  ${each(rows, (j) => `let r${j} = ${row(j)} * ${units}u;`)}`,
    rowOf: (pair) => (x.cols === cols ? `(${pair} / ${routes.cols / 2}u)` : pair),
  };
}
