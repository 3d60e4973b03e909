// Matmuls of several tokens with weights of the types that have a LaneDot (unpack/lanes.ts): the same as matmul-gemv.ts for one
// token, for a tile of tokens that share every loaded weight. Activations are prepared by a kernel of their own
// (prepare-activations.ts), once for all workgroups.
//
// A subgroup of 32 lanes computes a few rows for all tokens of the tile; a lane takes every 32nd chunk of each row. Every sum is
// added up in the order of matmul-gemv.ts, for any tile, so a token's result has the same bits in batches of any size.

import { countOf } from "../../../graph/batch.ts";
import type { NodeOf, Weight } from "../../../graph/graph.ts";
import { unpackOf } from "../unpack/table.ts";
import type { LaneDot } from "../unpack/unpack.ts";
import type { WeightPart } from "../weight-layout.ts";
import { gateText } from "./elementwise.ts";
import { type Kernel, makeKernel, type Source } from "./kernel.ts";
import { addText, dotsText, each, rowsText } from "./matmul-chunks.ts";
import { behindText, type FusedMatmul, type MatmulContext, weightBindings } from "./matmul-gemv.ts";
import { MOST_GROUPS } from "./matvec.ts";
import { preparedLayout } from "./prepare-activations.ts";
import { roundsActivations } from "./round-activations.ts";
import { SUBGROUP } from "./subgroups.ts";

/** The most tokens of such batches that there are buffers for. */
export const MOST_SMALL_BATCH = 64;

/** The kernels for rows of `part`, one for each tile. */
export function smallBatchKernels(
  matmul: FusedMatmul,
  part: WeightPart,
  partNumber: number,
  context: MatmulContext,
): Kernel[] {
  const { most, tiles } = context.smallBatch;
  let fewest = 2;
  return tiles
    .filter((_, i) => i === 0 || tiles[i - 1]! < most)
    .map((tile, i, all) => {
      const last = i === all.length - 1 ? most : tile;
      const kernel = severalKernel(matmul, part, partNumber, context, tile, [fewest, last]);
      fewest = tile + 1;
      return kernel;
    });
}

/** Whether a matmul of floats with so few rows, as a router's, is computed so in batches of any size: its weights stay in the cache. */
export function isSmall(weight: Weight): boolean {
  return !roundsActivations(weight) && weight.shape[0]! <= MOST_SMALL;
}

const MOST_SMALL = 512;

/** The kernel for batches of at least `minRows` tokens, whose activations are floats and stay as they are. */
export function smallKernel(
  node: NodeOf<"matmul">,
  part: WeightPart,
  partNumber: number,
  context: MatmulContext,
  minRows: number,
): Kernel {
  const tile = context.smallBatch.tiles.at(-1)!;
  const matmul = { x: node.x, matmuls: [node] };
  const source = { kind: "value", value: node.x } as const;
  return severalKernel(matmul, part, partNumber, context, tile, [minRows, Infinity], source);
}

function severalKernel(
  matmul: FusedMatmul,
  part: WeightPart,
  partNumber: number,
  context: MatmulContext,
  tile: number,
  [minRows, maxRows]: readonly [number, number],
  source: Source = { kind: "prepared" },
): Kernel {
  const { matmuls, gate } = matmul;
  const { weight, x, out } = matmuls[0]!;
  const lane = unpackOf(weight.dtype).lane!;
  const { subgroups, split } = context.shapeFor(part.rows, x.cols, weight.dtype.name);
  const { rows } = context.smallBatch;
  const size = subgroups * SUBGROUP;
  const outputs = gate ? part.rows / 2 : part.rows;
  const ownOutputs = gate ? rows / 2 : rows;
  const groupSubgroups = subgroups / split;
  const groupOutputs = groupSubgroups * ownOutputs;
  const sums = rows * tile;
  const hasLevels = weight.dtype.blockElems > 1;
  const behind = behindText(matmul, part);
  const groups = Math.ceil(outputs / groupOutputs);
  const across = Math.min(groups, MOST_GROUPS);
  const names = [weight.dtype.name, gate && "gate", matmul.add && "add"];
  const total = (row: string): string =>
    Array.from(
      { length: split },
      (_, share) =>
        `totals[(subgroup + ${share * groupSubgroups}u) * ${sums}u + offset * ${rows}u + ${row}]`,
    ).join(" + ");
  return makeKernel({
    name: `matmul-small-batch x${tile} ${names.filter(Boolean).join(" ")} [${part.rows}, ${x.cols}]`,
    bindings: [
      ...weightBindings(matmul, part, partNumber),
      { name: "x", type: "vec4u", source },
      ...(hasLevels ? [{ name: "xWords", type: "u32", source } as const] : []),
      { name: "batch", type: "u32", source: { kind: "batch" } },
      ...behind.bindings,
    ],
    enables: context.exchange.enables,
    size,
    declarations: `${dotsText(context.packedDots)}${lane.smallBatch ? lane.smallBatch.functions + productText : (lane.functions ?? "")}${context.exchange.sumsDeclarations(size, sums)}
var<workgroup> totals: array<f32, ${subgroups * sums}>; // [subgroup][token of the tile][row of the subgroup]${behind.declarations}`,
    rows: out.rows,
    minRows,
    maxRows,
    sameBits: true,
    // Workgroups of the same rows follow each other, so that they find the weights in the cache.
    grid: (tokens) => [Math.ceil(tokens / tile), across, Math.ceil(groups / across)],
    body: `
  let tokenCount = batch[${countOf(out.rows)}u];
  let firstToken = group.x * ${tile}u;
  let index = group.y + group.z * groups.y;
  if (index >= ${groups}u) { return; }
  let member = lane % ${SUBGROUP}u;
  let ownSubgroup = (lane / ${SUBGROUP}u) % ${groupSubgroups}u;
  let share = lane / ${groupSubgroups * SUBGROUP}u;
  let firstOfGroup = index * ${groupOutputs}u;
  let first = firstOfGroup + ownSubgroup * ${ownOutputs}u;
  ${rowsText(rows, gate !== undefined, outputs, x.cols / lane.unit)}
  ${tokensText(matmul, tile)}
  ${sumsText(sums)}${tileLoopText(lane, weight, rows, tile, split)}
  ${context.exchange.sums(
    sums,
    (i) => `sum${i}`,
    (i) => `totals[(lane / ${SUBGROUP}u) * ${sums}u + ${i}]`,
    size,
  )}
  workgroupBarrier();
  for (var item = lane; item < ${groupOutputs * tile}u; item += ${size}u) {
    let output = firstOfGroup + item % ${groupOutputs}u;
    let subgroup = (item % ${groupOutputs}u) / ${ownOutputs}u;
    let row = item % ${ownOutputs}u;
    let offset = item / ${groupOutputs}u;
    let token = firstToken + offset;
    if (output < ${outputs}u && token < tokenCount) {
      let total = ${total("row")};
      ${gate ? `let other = ${total(`row + ${ownOutputs}u`)};` : ""}
      put(token, output, ${gate ? gateText(gate.activation, "total", "other") : "total"}${behind.restAt("token", "output")});
    }
  }`,
  });
}

/** t0, t1, ...: where the prepared activations of each token begin, in words; tokens beyond the last repeat it. */
function tokensText({ matmuls }: FusedMatmul, tile: number): string {
  const { words } = preparedLayout(matmuls[0]!.weight);
  return each(tile, (t) => `let t${t} = min(firstToken + ${t}u, tokenCount - 1u) * ${words}u;`);
}

/** sum0, sum1, ... */
export const sumsText = (count: number): string =>
  `\n  ${each(count, (i) => `var sum${i} = 0.0;`)}`;

/** Multiplies every chunk of this lane with all tokens of the tile, which begin at t0, t1, ...: sum[t * rows + j]. */
export function tileLoopText(
  lane: LaneDot,
  weight: Weight,
  rows: number,
  tile: number,
  split: number,
  width: number = SUBGROUP,
): string {
  const chunks = weight.shape[1]! / lane.columns;
  const stride = width * split;
  const names = Object.keys(lane.loads);
  const term = termText(lane, weight);
  return `
  for (var c = member${split > 1 ? ` + share * ${width}u` : ""}; c < ${chunks}u; c += ${stride}u) {
    ${each(rows, (j) => names.map((name) => `let ${name}${j} = ${lane.loads[name]!.at(`r${j}`, "c")};`).join(" "))}
    let lowAt = ${lane.lowAt};
    let highAt = ${lane.highAt};
    ${each(rows, term.before)}
    ${each(
      tile,
      (t) => `{
      let t = t${t};
      let low = x[t / 4u + lowAt];
      ${lane.highAt === lane.lowAt ? "" : "let high = x[t / 4u + highAt];"}
      ${term.levels}
      ${each(rows, (j) => term.add(j, `sum${t * rows + j}`))}
    }`,
    )}
  }`;
}

interface TermText {
  /** Once for all tokens, of row `j`. */
  readonly before: (j: number) => string;
  /** Of a token. */
  readonly levels: string;
  /** Adds the dot product of a chunk of row `j` to its sum. */
  readonly add: (j: number, sum: string) => string;
}

function termText({ smallBatch, dot, factor, scaleAt }: LaneDot, weight: Weight): TermText {
  const { sumsAt, scalesAt } = preparedLayout(weight);
  const scale = `let scale = bitcast<f32>(xWords[t + ${scalesAt}u + (${scaleAt})]);`;
  const loaded = (j: number) => (name: string) => `${name}${j}`;
  if (smallBatch) {
    return {
      before: (j) =>
        `let low${j} = ${smallBatch.low(loaded(j))}; let high${j} = ${smallBatch.high(loaded(j))}; let factor${j} = ${factor!(loaded(j), `r${j}`, "c")};`,
      levels: scale,
      add: (j, sum) => addText(sum, true, `factor${j}`, `product(low${j}, low, high${j}, high)`),
    };
  }
  const before = () => "";
  const plain = (j: number): string => dot(loaded(j), `r${j}`, "c");
  if (weight.dtype.blockElems === 1) {
    return { before, levels: "", add: (j, sum) => addText(sum, false, undefined, plain(j)) };
  }
  const sumOf = (at: string): string => `bitcast<i32>(xWords[t + ${sumsAt}u + ${at}])`;
  return {
    before,
    levels: `let sumLow = ${sumOf("lowAt")};
      let sumHigh = ${sumOf("highAt")};
      ${scale}`,
    add: (j, sum) => addText(sum, true, factor?.(loaded(j), `r${j}`, "c"), plain(j)),
  };
}

/**
 * The last bit of a float between 2^23 and 2^24 is worth 1: an integer becomes a float by the bits of that exponent and a
 * subtraction, which is exact and takes less than a conversion. 0x4b400000 is 1.5 * 2^23.
 */
export const productText = `
fn product(a: vec4u, low: vec4u, b: vec4u, high: vec4u) -> f32 {
  return bitcast<f32>(0x4b400000 + dots(a, low) + dots(b, high)) - 12582912.0;
}`;
