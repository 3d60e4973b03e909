// Matmuls of one token with weights of the types that have a LaneDot (unpack/lanes.ts), fused with the nodes around them:
// select and norm before; biases, a residual, or gate and up with their activation after. All of it is one dispatch.
//
// A subgroup of 32 lanes computes a few rows. A lane takes every 32nd chunk of each row (matmul-chunks.ts). It loads 16 bytes of all rows, for a few
// chunks, before it uses any of them; the first loads are issued before activations are staged in workgroup memory (stage.ts),
// which every workgroup does for itself. Several subgroups may share rows, each with a part of the columns.

import type { NodeOf, Value, Weight } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { unpackOf } from "../unpack/table.ts";
import type { LaneDot } from "../unpack/unpack.ts";
import type { WeightPart } from "../weight-layout.ts";
import { type Arrival, layerArrival, noArrival } from "./arrival.ts";
import { gateText } from "./elementwise.ts";
import { type Binding, type Kernel, type KernelSpec, makeKernel, type Source } from "./kernel.ts";
import { dotsText, each, loopText, roundsText, rowsText } from "./matmul-chunks.ts";
import { groupGrid } from "./matvec.ts";
import { prefetchText } from "./prefetch.ts";
import {
  type RecordRow,
  type RecordStore,
  recordLoads,
  recordShape,
  recordStage,
  recordStore,
} from "./record.ts";
import { blockQuantsOf } from "./round-activations.ts";
import { STAGE_LANES, type StageSource, stageBytes, stageText } from "./stage.ts";
import { type Exchange, SUBGROUP } from "./subgroups.ts";

/** The shape of batches of several tokens. */
export interface SmallBatchShape {
  /** The most tokens of such a batch, at most MOST_SMALL_BATCH (matmul-small-batch.ts). */
  readonly most: number;
  /** Rows of a subgroup; even. */
  readonly rows: number;
  /** Tokens of a tile, in increasing order: a batch takes the first that is large enough, or several of the last. */
  readonly tiles: readonly number[];
}

/** The division of the work. */
export interface MatmulShape {
  /** Rows of a subgroup; even. */
  readonly rows: number;
  /** Subgroups of a workgroup. */
  readonly subgroups: number;
  /** Subgroups that share rows; divides `subgroups`. */
  readonly split: number;
  /** Chunks that a lane loads before it uses the first. */
  readonly ahead: number;
}

export interface MatmulContext {
  readonly batch: BatchLayout;
  readonly exchange: Exchange;
  /** WGSL has dot4I8Packed. */
  readonly packedDots: boolean;
  shapeFor(rows: number, cols: number, dtype: string): MatmulShape;
  /** The shape of batches of several tokens. */
  readonly smallBatch: SmallBatchShape;
}

/** A matmul with the nodes that are fused with it. */
export interface FusedMatmul extends StageSource {
  /** Matmuls of stacked weights, or one. */
  readonly matmuls: readonly NodeOf<"matmul">[];
  /** The two matmuls are gate and up, and this node reads them. */
  readonly gate?: NodeOf<"gate"> | undefined;
  /** The add that reads the one matmul, and its other operand. */
  readonly add?: { readonly node: NodeOf<"add">; readonly residual: Value } | undefined;
  /** The weight of the only matmul that reads the result of `gate`: a record (record.ts) may replace the result. */
  readonly readBy?: Weight | undefined;
  /** The matmul with a gate that computes x, which no other node reads. */
  readonly madeBy?: FusedMatmul | undefined;
  /** x is such a record in batches of one token: of attention. */
  readonly record?: RecordRow | undefined;
}

/** The record that this matmul of one token stores instead of its result, and its shape then; undefined: it stores floats. */
function recordOf(
  { matmuls, gate, readBy, x }: FusedMatmul,
  { shapeFor }: MatmulContext,
): { readonly row: RecordRow; readonly shape: MatmulShape } | undefined {
  const quants = readBy && blockQuantsOf(readBy.dtype.activation);
  if (!gate || !quants) return undefined;
  const row = { value: gate.out, quants };
  const usual = shapeFor(gate.out.cols * 2, x.cols, matmuls[0]!.weight.dtype.name);
  const shape = recordShape(row, usual);
  return shape && { row, shape };
}

/** The LaneDot of this weight; undefined: it has none here. */
export function laneDotOf(weight: Weight, workgroupBytes: number): LaneDot | undefined {
  const { dtype, shape } = weight;
  const lane = unpackOf(dtype).lane;
  if (!lane || shape[1]! % lane.unit !== 0) return undefined;
  return stageBytes(weight) <= workgroupBytes ? lane : undefined;
}

/** The kernel for rows of `part`: of one weight, or of all stacked ones. */
export function fusedMatmulKernel(
  matmul: FusedMatmul,
  part: WeightPart,
  partNumber: number,
  context: MatmulContext,
): Kernel {
  const record = recordOf(matmul, context);
  const { weight, x } = matmul.matmuls[0]!;
  const usual = record?.shape ?? context.shapeFor(part.rows, x.cols, weight.dtype.name);
  const spec = (shape: MatmulShape, arrival: Arrival): KernelSpec =>
    fusedMatmulSpec(matmul, part, partNumber, context, shape, record?.row, arrival);
  return {
    ...makeKernel(spec(usual, noArrival)),
    inLayer: (lanes) => {
      const shape = withLanes(usual, lanes);
      return shape && spec(withHeld(shape, unpackOf(weight.dtype).lane!), layerArrival);
    },
  };
}

function fusedMatmulSpec(
  matmul: FusedMatmul,
  part: WeightPart,
  partNumber: number,
  context: MatmulContext,
  { rows, subgroups, split, ahead }: MatmulShape,
  record: RecordRow | undefined,
  arrival: Arrival,
): KernelSpec {
  const { matmuls, gate } = matmul;
  const { weight, x, out } = matmuls[0]!;
  const lane = unpackOf(weight.dtype).lane!;
  const size = subgroups * SUBGROUP;
  const outputs = gate ? part.rows / 2 : part.rows;
  const ownOutputs = gate ? rows / 2 : rows;
  const groupOutputs = (subgroups / split) * ownOutputs;
  const { exchange, batch } = context;
  const made = matmul.record ?? (matmul.madeBy && recordOf(matmul.madeBy, context)?.row);
  const staged = made
    ? recordStage(made, size, arrival)
    : stageText(matmul, weight, size, exchange, batch, arrival);
  // If all of it is in memory, a lane loads its operands from there, without a barrier.
  const direct = made && !arrival.inRounds ? recordLoads(made) : undefined;
  const stage = direct
    ? { ...direct, functions: [], declarations: "", early: "", body: "" }
    : staged;
  const store = record && recordStore(record, groupOutputs, exchange);
  const behind = behindText(matmul, part, store);
  // The first weights are loaded before activations that others may still be computing.
  const staging = direct ? "" : `${stage.early}${arrival.barrier}${stage.body}`;
  const functions = [...new Set([...stage.functions, ...(store?.functions ?? [])])].join("");
  const groups = Math.ceil(outputs / groupOutputs);
  const shape = { rows, split, ahead };
  const units = x.cols / lane.unit;
  const lanes = (token: string): string => `
  let token = ${token};
  let member = lane % ${SUBGROUP}u;
  let subgroup = (lane / ${SUBGROUP}u) % ${subgroups / split}u;
  let share = lane / ${(subgroups / split) * SUBGROUP}u;`;
  const firstOf = (index: string): string =>
    `${index} * ${groupOutputs}u + subgroup * ${ownOutputs}u`;
  const finish = `
  ${each(rows, (j) => `sum${j} = sumOverSubgroup(sum${j}, lane);`)}
  ${split > 1 ? shareText(rows, subgroups, split) : ""}
  if (member == 0u${split > 1 ? " && share == 0u" : ""}) {
    ${each(ownOutputs, (j) => {
      const value = gate ? gateText(gate.activation, `sum${j}`, `sum${j + ownOutputs}`) : `sum${j}`;
      return `if (first + ${j}u < ${outputs}u) { put(token, first + ${j}u, ${value}${behind.rest(j)}); }`;
    })}
  }${store?.body ?? ""}`;
  const alone = `
  let index = group.x + group.y * groups.x;
  if (index >= ${groups}u) { return; }
  let first = ${firstOf("index")};
  ${rowsText(rows, gate !== undefined, outputs, units)}
  ${behind.early(ownOutputs, outputs, arrival)}
  ${loopText(lane, weight, shape, staging, direct)}${finish}`;
  const inRounds = `
  var index = group.x;
  var first = ${firstOf("index")};
  ${rowsText(rows, gate !== undefined, outputs, units, { declare: "var " })}
  ${roundsText(lane, weight, shape, {
    count: groups,
    nextRows: `let firstOfNext = ${firstOf("next")};
    ${rowsText(rows, gate !== undefined, outputs, units, { name: "n", first: "firstOfNext" })}`,
    before: `${behind.early(ownOutputs, outputs, arrival)}\n  ${staging}`,
    finish,
    again: `first = firstOfNext;\n    ${behind.early(ownOutputs, outputs, { ...arrival, declare: () => "" })}`,
  })}`;
  const prefetched = {
    ...{ rounds: groups, rows: groupOutputs, isGated: gate !== undefined, outputs, size },
    vectors: Math.floor(part.wide.bytes / part.rows / 16),
  };
  const names = [
    matmul.norm && "norm",
    weight.dtype.name,
    gate && "gate",
    record && "to record",
    made && "of record",
    matmul.add && "add",
  ];
  return {
    name: `matmul ${names.filter(Boolean).join(" ")} [${part.rows}, ${x.cols}]`,
    bindings: [...weightBindings(matmul, part, partNumber), ...stage.bindings, ...behind.bindings],
    enables: context.exchange.enables,
    size,
    declarations: `${context.exchange.declarations(size)}${functions}${stage.declarations}${dotsText(context.packedDots)}${lane.functions ?? ""}
${context.exchange.reduce("sumOverSubgroup", SUBGROUP, "sum")}
${split > 1 ? `var<workgroup> partial: array<f32, ${subgroups * rows}>;` : ""}${behind.declarations}${arrival.inRounds ? prefetchText(prefetched) : ""}`,
    rows: out.rows,
    maxRows: 1,
    sameBits: true,
    grid: groupGrid(groups),
    ...(arrival.inRounds
      ? { body: `${lanes("0u")}${inRounds}`, rounds: groups }
      : { body: `${lanes("group.z")}${alone}` }),
  };
}

/**
 * Words of weights that a lane of a layer kernel loads ahead, at most. They are on their way while it waits for others; with more of them, a core of an
 * H200 has registers for fewer workgroups: with 40, 60 and 80 a token of a 1.1B takes 0.545, 0.565 and 0.61 ms.
 */
const HELD_WORDS = 40;

function withHeld(shape: MatmulShape, { loads }: LaneDot): MatmulShape {
  const words = Object.values(loads).reduce((sum, { type }) => sum + (type === "u32" ? 1 : 4), 0);
  return { ...shape, ahead: Math.max(1, Math.floor(HELD_WORDS / (shape.rows * words))) };
}

/** The same rows and bits in a workgroup of `lanes` lanes: more subgroups with fewer rows each; undefined: there is no such shape. */
function withLanes(shape: MatmulShape, lanes: number | undefined): MatmulShape | undefined {
  const subgroups = lanes === undefined ? shape.subgroups : lanes / SUBGROUP;
  const rows = (shape.rows * shape.subgroups) / subgroups;
  const isWhole = rows % 2 === 0 && subgroups % shape.split === 0;
  return isWhole && STAGE_LANES % (subgroups * SUBGROUP) === 0
    ? { ...shape, rows, subgroups }
    : undefined;
}

/** Adds the sums of the subgroups that share rows. */
function shareText(rows: number, subgroups: number, split: number): string {
  const perShare = subgroups / split;
  return `
  if (member == 0u) { ${each(rows, (j) => `partial[(share * ${perShare}u + subgroup) * ${rows}u + ${j}u] = sum${j};`)} }
  workgroupBarrier();
  for (var other = 1u; other < ${split}u; other++) {
    ${each(rows, (j) => `sum${j} += partial[(other * ${perShare}u + subgroup) * ${rows}u + ${j}u];`)}
  }`;
}

export function weightBindings(
  { matmuls }: FusedMatmul,
  part: WeightPart,
  partNumber: number,
): Binding[] {
  const { weight } = matmuls[0]!;
  const source: Source =
    matmuls.length > 1 ? { kind: "stack", weight } : { kind: "weight", weight, part: partNumber };
  const bindings: Binding[] = [{ name: "wide", type: "vec4u", source }];
  if (part.narrow) {
    bindings.push({ name: "narrow", type: "u32", source: { ...source, plane: "narrow" } });
  }
  return bindings;
}

/** The work on an output after the matmul. */
export interface BehindText {
  readonly bindings: readonly Binding[];
  /** `fn put(token, row, sum [, residual])`: applies the nodes after the matmul to an output, and stores it. */
  readonly declarations: string;
  /** Loads the residuals of the next `count` outputs from `first` on, long before they are added. */
  early(count: number, outputs: number, arrival: Arrival): string;
  /** The last argument of put() for output `j` of those; empty: there is none. */
  rest(j: number): string;
  /** The same without early(). */
  restAt(token: string, row: string): string;
}

/** `store`: the result of a gate is stored as a record. */
export function behindText(
  { matmuls, gate, add }: FusedMatmul,
  { rowStart }: WeightPart,
  store?: RecordStore,
): BehindText {
  const bindings: Binding[] = [];
  const writes = (name: string, value: Value): void => {
    bindings.push({ name, type: "f32", source: { kind: "value", value }, writes: true });
  };
  const nothing = { early: () => "", rest: () => "", restAt: () => "" };
  if (store) {
    const declarations = `${store.declarations}${putText(store.keep("row", "sum"))}`;
    return { bindings: [store.binding], declarations, ...nothing };
  }
  if (gate) {
    writes("result", gate.out);
    const declarations = putText(`result[token * ${gate.out.cols}u + row] = sum;`);
    return { bindings, declarations, ...nothing };
  }
  if (add) {
    bindings.push({
      name: "residual",
      type: "f32",
      source: { kind: "value", value: add.residual },
    });
  }
  let first = 0;
  const cases = matmuls.map(({ out, bias }, i) => {
    writes(`result${i}`, add ? add.node.out : out);
    if (bias) {
      const source = { kind: "weight", weight: bias, part: 0 } as const;
      bindings.push({ name: `bias${i}`, type: "f32", source });
    }
    const row = `(row ${first > 0 ? `- ${first}u` : `+ ${rowStart}u`})`;
    const at = `token * ${out.cols}u + ${row}`;
    const extra = `${bias ? ` + bias${i}[${row}]` : ""}${add ? " + rest" : ""}`;
    first += out.cols;
    const store = `result${i}[${at}] = sum${extra};`;
    return matmuls.length === 1 ? store : `if (row < ${first}u) { ${store} return; }`;
  });
  const declarations = putText(cases.join("\n  "), add !== undefined);
  if (!add) return { bindings, declarations, ...nothing };
  const at = (token: string, row: string): string =>
    `residual[${token} * ${add.node.out.cols}u + ${row} + ${rowStart}u]`;
  return {
    bindings,
    declarations,
    early: (count, outputs, { declare, loads }) => {
      const rests = each(count, (j) => {
        const rest = at("token", `min(first + ${j}u, ${outputs - 1}u)`);
        return `${declare ? "" : "let "}rest${j} = ${rest};`;
      });
      return `${declare ? each(count, (j) => declare(`rest${j}`, "f32")) : ""}${loads(rests)}`;
    },
    rest: (j) => `, rest${j}`,
    restAt: (token, row) => `, ${at(token, row)}`,
  };
}

const putText = (body: string, hasRest = false): string => `
fn put(token: u32, row: u32, sum: f32${hasRest ? ", rest: f32" : ""}) {
  ${body}
}`;
