// matmul for few tokens, for types that multiply 32 values at a time (BlockUnpack.dot32): a lane takes 32 columns, loads their
// activations once and multiplies them with 4 rows, so that a block's scale is read once and its bytes in whole words.
//
// Up to 32 lanes share 4 rows; where rows are short, fewer do, and a workgroup computes more rows. matvec.ts is for the rest.

import type { NodeOf, Weight } from "../../../graph/graph.ts";
import { unpackOf } from "../unpack/table.ts";
import type { WeightPart } from "../weight-layout.ts";
import { type Kernel, LANES, makeKernel } from "./kernel.ts";
import { groupGrid, MATVEC_TOKENS, valueBindings } from "./matvec.ts";
import { weightText } from "./weights.ts";

/** Columns that a lane takes at a time. */
const CHUNK = 32;

/** Rows that share what was loaded of the activations. */
const ROWS = 4;

export function multipliesChunks({ dtype, shape }: Weight): boolean {
  const unpack = unpackOf(dtype);
  return unpack?.kind === "block" && unpack.dot32 !== undefined && shape[1]! % CHUNK === 0;
}

export function matvecBlocksKernel(
  node: NodeOf<"matmul">,
  parts: readonly WeightPart[],
  part: number,
): Kernel {
  const { x, weight, out, bias } = node;
  const { rowStart, rows } = parts[part]!;
  const { dtype } = weight;
  const cols = x.cols;
  const chunks = cols / CHUNK;
  const sharing = lanesPerRows(chunks);
  const outputs = (LANES / sharing) * ROWS;
  const rowBytes = (cols / dtype.blockElems) * dtype.blockBytes;
  const text = weightText(weight, part);
  return makeKernel({
    name: `matvec-blocks ${dtype.name} [${rows}, ${cols}]`,
    bindings: [...text.bindings, ...valueBindings(node)],
    declarations: `${text.declarations}
var<workgroup> partial: array<vec4f, ${LANES}>;`,
    rows: out.rows,
    maxRows: MATVEC_TOKENS,
    grid: groupGrid(Math.ceil(rows / outputs)),
    body: `
  let team = group.x + group.y * groups.x;
  let token = group.z;
  let first = team * ${outputs}u + (lane / ${sharing}u) * ${ROWS}u;
  let starts = min(vec4u(first) + vec4u(0u, 1u, 2u, 3u), vec4u(${rows - 1}u)) * ${rowBytes}u;
  var sums = vec4f();
  for (var chunk = lane % ${sharing}u; chunk < ${chunks}u; chunk += ${sharing}u) {
    let at = token * ${cols / 4}u + chunk * 8u;
    ${Array.from({ length: 8 }, (_, j) => `xs[${j}] = x[at + ${j}u];`).join(" ")}
    let total = ((xs[0] + xs[1]) + (xs[2] + xs[3])) + ((xs[4] + xs[5]) + (xs[6] + xs[7]));
    xTotal = (total.x + total.y) + (total.z + total.w);
    let column = chunk * ${CHUNK}u;
    let blocks = starts + (column / ${dtype.blockElems}u) * ${dtype.blockBytes}u;
    let i = column % ${dtype.blockElems}u;
    sums += vec4f(dot32(blocks.x, i), dot32(blocks.y, i), dot32(blocks.z, i), dot32(blocks.w, i));
  }
  partial[lane] = sums;
  workgroupBarrier();
  let output = team * ${outputs}u + lane;
  if (lane < ${outputs}u && output < ${rows}u) {
    let firstLane = (lane / ${ROWS}u) * ${sharing}u;
    var sum = 0.0;
    for (var j = 0u; j < ${sharing}u; j++) { sum += partial[firstLane + j][lane % ${ROWS}u]; }
    let to = ${rowStart}u + output;
    result[token * ${out.cols}u + to] = sum${bias ? " + bias[to]" : ""};
  }`,
  });
}

/** A power of two, so that a workgroup is shared without a rest; 4 at least, so that a lane writes at most one output. */
function lanesPerRows(chunks: number): number {
  let lanes = 4;
  while (lanes < 32 && lanes < chunks) lanes *= 2;
  return lanes;
}
