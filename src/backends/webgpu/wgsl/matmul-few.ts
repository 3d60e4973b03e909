// Matmuls of one token with weights of the types that have a LaneDot (unpack/lanes.ts), fused with the nodes around them:
// select and norm before; biases, a residual, or gate and up with their activation after. All of it is one dispatch.
//
// A team of 32 lanes computes a few rows. A lane takes every 32nd chunk of each row. It loads 16 bytes of all rows, for a few
// chunks, before it uses any of them; the first loads are issued before activations are staged in workgroup memory (stage.ts),
// which every workgroup does for itself. Several teams may share rows, each with a part of the columns.

import type { NodeOf, Value, Weight } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { unpackOf } from "../unpack/table.ts";
import type { LaneDot } from "../unpack/unpack.ts";
import type { WeightPart } from "../weight-layout.ts";
import { type Arrival, layerArrival, noArrival } from "./arrival.ts";
import { gateText } from "./elementwise.ts";
import { type Binding, type Kernel, type KernelSpec, makeKernel, type Source } from "./kernel.ts";
import { groupGrid } from "./matvec.ts";
import {
  type RecordLoads,
  type RecordRow,
  type RecordStore,
  recordLoads,
  recordShape,
  recordStage,
  recordStore,
} from "./record.ts";
import { blockQuantsOf } from "./round-activations.ts";
import { type StageSource, stageBytes, stageText } from "./stage.ts";
import { type Exchange, TEAM } from "./teams.ts";

/** How batches of several tokens are computed. */
export interface SeveralShape {
  /** The most tokens of such a batch, at most MOST_SEVERAL (matmul-several.ts). */
  readonly most: number;
  /** Rows of a team; even. */
  readonly rows: number;
  /** Tokens of a tile, in increasing order: a batch takes the first that is large enough, or several of the last. */
  readonly tiles: readonly number[];
}

/** How the work is divided. */
export interface MatmulShape {
  /** Rows of a team; even. */
  readonly rows: number;
  /** Teams of a workgroup. */
  readonly teams: number;
  /** Teams that share rows; divides `teams`. */
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
  /** Of batches of several tokens. */
  readonly several: SeveralShape;
}

/** A matmul with the nodes that are fused with it. */
export interface FusedMatmul extends StageSource {
  /** Matmuls of stacked weights, or one. */
  readonly matmuls: readonly NodeOf<"matmul">[];
  /** The two matmuls are gate and up, and this node reads them. */
  readonly gate?: NodeOf<"gate"> | undefined;
  /** The add that reads the one matmul, and its other operand. */
  readonly add?: { readonly node: NodeOf<"add">; readonly residual: Value } | undefined;
  /** The weight of the matmul that alone reads the result of `gate`: a record (record.ts) may take its place. */
  readonly readBy?: Weight | undefined;
  /** The matmul with a gate that computes x, which nobody else reads. */
  readonly madeBy?: FusedMatmul | undefined;
}

/** The record that this matmul of one token stores in place of its result, and its shape then; undefined: it stores floats. */
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
  const spec = (arrival: Arrival): KernelSpec =>
    fusedMatmulSpec(matmul, part, partNumber, context, arrival);
  return { ...makeKernel(spec(noArrival)), inLayer: () => spec(layerArrival) };
}

function fusedMatmulSpec(
  matmul: FusedMatmul,
  part: WeightPart,
  partNumber: number,
  context: MatmulContext,
  arrival: Arrival,
): KernelSpec {
  const { matmuls, gate } = matmul;
  const { weight, x, out } = matmuls[0]!;
  const lane = unpackOf(weight.dtype).lane!;
  const record = recordOf(matmul, context);
  const usual = context.shapeFor(part.rows, x.cols, weight.dtype.name);
  const { rows, teams, split, ahead } = withAhead(record?.shape ?? usual, lane, arrival);
  const size = teams * TEAM;
  const outputs = gate ? part.rows / 2 : part.rows;
  const ownOutputs = gate ? rows / 2 : rows;
  const groupOutputs = (teams / split) * ownOutputs;
  const { exchange, batch } = context;
  const made = matmul.madeBy && recordOf(matmul.madeBy, context)?.row;
  const staged = made
    ? recordStage(made, size, arrival)
    : stageText(matmul, weight, size, exchange, batch, arrival);
  // Where all of it is in memory, a lane loads what it multiplies from there, without a barrier.
  const direct = made && !arrival.declare ? recordLoads(made) : undefined;
  const stage = direct ? { ...direct, functions: [], declarations: "", body: "" } : staged;
  const store = record && recordStore(record.row, groupOutputs, exchange);
  const behind = behindText(matmul, part, store);
  // The first weights are loaded before activations that others may still be computing.
  const staging = direct ? "" : arrival.once(`${arrival.barrier}${stage.body}`);
  const functions = [...new Set([...stage.functions, ...(store?.functions ?? [])])].join("");
  const groups = Math.ceil(outputs / groupOutputs);
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
${context.exchange.reduce("sumOverTeam", TEAM, "sum")}
${split > 1 ? `var<workgroup> partial: array<f32, ${teams * rows}>;` : ""}${behind.declarations}`,
    rows: out.rows,
    maxRows: 1,
    sameBits: true,
    grid: groupGrid(groups),
    body: `
  let token = group.z;
  let index = group.x + group.y * groups.x;
  if (index >= ${groups}u) { return; }
  let member = lane % ${TEAM}u;
  let team = (lane / ${TEAM}u) % ${teams / split}u;
  let share = lane / ${(teams / split) * TEAM}u;
  let first = index * ${groupOutputs}u + team * ${ownOutputs}u;
  ${rowsText(rows, gate !== undefined, outputs, x.cols / lane.unit)}
  ${behind.early(ownOutputs, outputs, arrival)}
  ${loopText(lane, weight, { rows, split, ahead }, staging, direct)}
  ${each(rows, (j) => `sum${j} = sumOverTeam(sum${j}, lane);`)}
  ${split > 1 ? shareText(rows, teams, split) : ""}
  if (member == 0u${split > 1 ? " && share == 0u" : ""}) {
    ${each(ownOutputs, (j) => {
      const value = gate ? gateText(gate.activation, `sum${j}`, `sum${j + ownOutputs}`) : `sum${j}`;
      return `if (first + ${j}u < ${outputs}u) { put(token, first + ${j}u, ${value}${behind.rest(j)}); }`;
    })}
  }${store?.body ?? ""}`,
  };
}

/** Words of weights that a lane loads ahead, at most: with 120 of them an H200 has registers for one workgroup of 256 lanes in a core, not for two. */
const MOST_AHEAD = 80;

function withAhead(shape: MatmulShape, { loads }: LaneDot, arrival: Arrival): MatmulShape {
  const words = Object.values(loads).reduce((sum, { type }) => sum + (type === "u32" ? 1 : 4), 0);
  const held = Math.floor(MOST_AHEAD / (shape.rows * words));
  return { ...shape, ahead: Math.max(shape.ahead, Math.min(arrival.ahead, held)) };
}

/** `fn dots`: the dot product of sixteen 8-bit numbers and sixteen others. */
export const dotsText = (packed: boolean): string => `
${packed ? "" : dot4Text}
fn dots(a: vec4u, b: vec4u) -> i32 {
  return ${["x", "y", "z", "w"].map((part) => `${packed ? "dot4I8Packed" : "dot4"}(a.${part}, b.${part})`).join(" + ")};
}`;

const dot4Text = `
fn signed4(word: u32) -> vec4i { return bitcast<vec4i>(vec4u(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u); }
fn dot4(a: u32, b: u32) -> i32 {
  let products = signed4(a) * signed4(b);
  return products.x + products.y + products.z + products.w;
}`;

/** r0, r1, ...: the first unit of each row of the team; rows beyond the last repeat it. */
export function rowsText(rows: number, gated: boolean, outputs: number, units: number): string {
  return each(rows, (j) => {
    const own = gated ? rows / 2 : rows;
    const output = `min(first + ${j % own}u, ${outputs - 1}u)`;
    return `let r${j} = (${output}${j >= own ? ` + ${outputs}u` : ""}) * ${units}u;`;
  });
}

/** Loads the first chunks, stages activations, then multiplies chunk by chunk and loads a later one in place of each. */
function loopText(
  lane: LaneDot,
  weight: Weight,
  { rows, split, ahead }: Omit<MatmulShape, "teams">,
  staging: string,
  direct: RecordLoads | undefined,
): string {
  const chunks = weight.shape[1]! / lane.columns;
  const stride = TEAM * split;
  const slots = Math.min(ahead, Math.ceil(chunks / stride));
  const names = Object.keys(lane.loads);
  const perLoad = (text: (j: number, name: string) => string): string =>
    each(rows, (j) => names.map((name) => text(j, name)).join(" "));
  const load = (slot: number, j: number, name: string): string =>
    lane.loads[name]!.at(`r${j}`, `at${slot}`);
  const last = `${chunks - 1}u`;
  const multiply = (slot: number): string =>
    chunkText(lane, weight, rows, slot, `c + ${slot * stride}u < ${chunks}u`, direct !== undefined);
  const loadDirect = (slot: number): string => (direct ? directText(lane, slot, direct) : "");
  const sums = each(rows, (j) => `var sum${j} = 0.0;`);
  const first = `
  var c = member + share * ${TEAM}u;
  ${each(slots, (slot) => `var at${slot} = min(c + ${slot * stride}u, ${last});`)}
  ${each(slots, (slot) => perLoad((j, name) => `var ${name}${j}_${slot} = ${load(slot, j, name)};`))}
  ${direct ? each(slots, (slot) => `var low_${slot} = vec4u(); var high_${slot} = vec4u(); var scale_${slot} = 0.0; ${loadDirect(slot)}`) : ""}
  ${staging}
  ${sums}`;
  if (slots * stride >= chunks) return `${first}\n  ${each(slots, multiply)}`;
  return `${first}
  for (var start = 0u; start < ${chunks}u; start += ${stride * slots}u) {
    ${each(slots, (slot) => {
      const next = perLoad((j, name) => `${name}${j}_${slot} = ${load(slot, j, name)};`);
      return `${multiply(slot)}
    at${slot} = min(c + ${(slots + slot) * stride}u, ${last});
    ${next}
    ${loadDirect(slot)}`;
    })}
    c += ${stride * slots}u;
  }`;
}

/** Loads the activations beside the chunk in a slot from a record. */
function directText(
  { lowAt, highAt, scaleAt }: LaneDot,
  slot: number,
  { quants, scale }: RecordLoads,
): string {
  return `{
      let c = at${slot};
      let lowAt = ${lowAt};
      low_${slot} = ${quants("lowAt")};
      high_${slot} = ${quants(highAt)};
      scale_${slot} = ${scale(`(${scaleAt})`)};
    }`;
}

/** Multiplies the chunk in a slot, number atSLOT of the row, if it exists. */
function chunkText(
  lane: LaneDot,
  weight: Weight,
  rows: number,
  slot: number,
  exists: string,
  isDirect: boolean,
): string {
  const hasLevels = weight.dtype.blockElems > 1;
  const sums = hasLevels
    ? `let sumLow = dots(low, vec4u(0x01010101u));
      let sumHigh = dots(high, vec4u(0x01010101u));
      let scale = ${isDirect ? `scale_${slot}` : `scales[${lane.scaleAt}]`};`
    : "";
  return `if (${exists}) {
      let c = at${slot};
      let lowAt = ${lane.lowAt};
      let low = ${isDirect ? `low_${slot}` : "staged[lowAt]"};
      ${lane.highAt === lane.lowAt ? "" : `let high = ${isDirect ? `high_${slot}` : `staged[${lane.highAt}]`};`}
      ${sums}
      ${each(rows, (j) => {
        const dot = lane.dot((name) => `${name}${j}_${slot}`, `r${j}`, "c");
        return `sum${j} += ${hasLevels ? "scale * " : ""}${dot};`;
      })}
    }`;
}

/** Adds the sums of the teams that share rows. */
function shareText(rows: number, teams: number, split: number): string {
  const perShare = teams / split;
  return `
  if (member == 0u) { ${each(rows, (j) => `partial[(share * ${perShare}u + team) * ${rows}u + ${j}u] = sum${j};`)} }
  workgroupBarrier();
  for (var other = 1u; other < ${split}u; other++) {
    ${each(rows, (j) => `sum${j} += partial[(other * ${perShare}u + team) * ${rows}u + ${j}u];`)}
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

/** What is done with an output after the matmul. */
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

/** The same text for 0, 1, 2, ...: arrays indexed by a variable are slow. */
export function each(count: number, text: (j: number) => string): string {
  return Array.from({ length: count }, (_, j) => text(j)).join("\n  ");
}
