// A token's mixture of experts, in batches of one token: the kernels behind the router's matmul (matmul-gemv.ts, with the norm before it).
//
//   gate and up: every workgroup normalises and rounds the token (stage.ts) and chooses its experts (route.ts); then it computes rows of
//     gate and up of one of them, and their activation
//   down: a workgroup computes a few rows for all slots, and adds them up by their weights, in the order of the slots, and to the residual
//
// Between them passes a record of each slot (record.ts), where rows of gate and up make whole blocks; otherwise floats, which a dispatch of
// prepare-activations.ts rounds. Every sum has the order of matmul-experts.ts, which computes larger batches, and of combine: the same bits.

import type { NodeOf, Value, Weight } from "../../../graph/graph.ts";
import { gateText } from "./elementwise.ts";
import { type Binding, type Kernel, makeKernel } from "./kernel.ts";
import { dotsText, each, loopText, rowsText } from "./matmul-chunks.ts";
import {
  type ExpertMatmul,
  type ExpertShape,
  preparedBindings,
  preparedLoads,
  shapeOf,
} from "./matmul-experts.ts";
import type { FusedMatmul, MatmulContext } from "./matmul-gemv.ts";
import { preparedLayout } from "./prepare-activations.ts";
import { type RecordRow, recordShape, recordStore, scalesAt } from "./record.ts";
import { blockQuantsOf } from "./round-activations.ts";
import { routeText } from "./route.ts";
import { stageText } from "./stage.ts";

/** The nodes of a mixture of experts, from its norm on. */
export interface FusedExperts {
  /** The norm and the router's matmul. */
  readonly router: FusedMatmul;
  readonly norm: NodeOf<"rms_norm">;
  readonly route: NodeOf<"route">;
  readonly gate: NodeOf<"matmul_id">;
  readonly up: NodeOf<"matmul_id">;
  readonly activation: NodeOf<"gate">;
  readonly down: NodeOf<"matmul_id">;
  readonly combine: NodeOf<"combine">;
  readonly add: { readonly node: NodeOf<"add">; readonly residual: Value } | undefined;
}

/** Storage buffers that the kernels bind, at most: both planes, x, norm, logits, biases of choices and of experts, scales; routes and result. */
export function boundBuffers({ route, gate, up, down }: FusedExperts): number {
  const given = (...weights: readonly (Weight | undefined)[]): number =>
    weights.filter((weight) => weight).length;
  return Math.max(
    7 + given(route.bias, route.scales, gate.bias, up.bias),
    // Both planes, prepared activations as vectors and as words, routes, residual, result.
    7 + given(down.bias),
  );
}

/** The record of each slot, and the shape of gate and up that computes whole blocks of it; undefined: there is none. */
export function slotRecord(
  { activation, down }: FusedExperts,
  gateUp: ExpertMatmul,
  context: MatmulContext,
): { readonly row: RecordRow; readonly shape: ExpertShape } | undefined {
  const [, outputs] = gateUp.node.weight.shape as [number, number, number];
  const quants = blockQuantsOf(down.weight.dtype.activation);
  if (!quants) return undefined;
  const row = { value: { ...activation.out, cols: outputs }, quants };
  const shape = recordShape(row, { ...shapeOf(gateUp, context), split: 1 });
  return shape && { row, shape };
}

/** Norm, routes, gate, up and their activation. `gateUp`: the matmul of gate, whose weights those of up follow. */
export function expertGateKernel(
  experts: FusedExperts,
  gateUp: ExpertMatmul,
  hasNarrow: boolean,
  context: MatmulContext,
): Kernel {
  const { norm, route, gate, up, activation } = experts;
  const { matrix, lane } = gateUp;
  const [count, outputs, cols] = gate.weight.shape as [number, number, number];
  const record = slotRecord(experts, gateUp, context);
  const { rows, subgroups, width, ahead } = record?.shape ?? shapeOf(gateUp, context);
  const size = subgroups * width;
  const own = rows / 2;
  const groupOutputs = subgroups * own;
  const { exchange, batch } = context;
  const stage = stageText({ x: norm.x, norm }, matrix, size, exchange, batch);
  const routing = routeText(route, size);
  const store = record && recordStore(record.row, groupOutputs, exchange, `group.y * ${outputs}u`);
  const source = { kind: "stack", weight: gate.weight } as const;
  const bindings: Binding[] = [{ name: "wide", type: "vec4u", source }];
  if (hasNarrow) {
    bindings.push({ name: "narrow", type: "u32", source: { ...source, plane: "narrow" } });
  }
  bindings.push(...stage.bindings, ...routing.bindings, routing.result);
  const biases = Object.entries({ gateBias: gate.bias, upBias: up.bias });
  for (const [name, weight] of biases) {
    if (weight) bindings.push({ name, type: "f32", source: { kind: "weight", weight, part: 0 } });
  }
  bindings.push(store?.binding ?? writes("result", activation.out));
  const functions = [...new Set([...stage.functions, ...(store?.functions ?? [])])].join("");
  const biasOf = (name: string, bias: Weight | undefined, j: number): string =>
    bias ? `let ${name}${j} = ${name}[biasAt + min(firstOutput + ${j}u, ${outputs - 1}u)];` : "";
  const put = (j: number): string => {
    const value = gateText(activation.activation, "gateSum", "upSum");
    const at = `(firstOutput + ${j}u)`;
    const kept = store
      ? store.keep(at, value)
      : `result[group.y * ${outputs}u + ${at}] = ${value};`;
    return `if (${at} < ${outputs}u) {
      let gateSum = sum${j}${gate.bias ? ` + gateBias${j}` : ""};
      let upSum = sum${j + own}${up.bias ? ` + upBias${j}` : ""};
      ${kept}
    }`;
  };
  const names = [matrix.dtype.name, "gate", record && "to record"].filter(Boolean).join(" ");
  return makeKernel({
    name: `matmul-experts norm route ${names} [${count}, ${2 * outputs}, ${cols}]`,
    bindings,
    enables: exchange.enables,
    size,
    declarations: `${exchange.declarations(size)}${functions}${stage.declarations}${routing.declarations}${dotsText(context.packedDots)}${lane.functions ?? ""}
${exchange.reduce("sumOverSubgroup", width, "sum")}${store?.declarations ?? ""}`,
    rows: gate.out.rows,
    maxRows: 1,
    sameBits: true,
    grid: () => [Math.ceil(outputs / groupOutputs), route.routing.used, 1],
    body: `
  let token = 0u;
  let index = group.x;
  let member = lane % ${width}u;
  let subgroup = lane / ${width}u;
  ${routing.load}
  ${stage.early}${stage.body}${routing.choose}
  let expert = min(chosen[group.y], ${count - 1}u);
  let firstOutput = index * ${groupOutputs}u + subgroup * ${own}u;
  let first = expert * ${outputs}u + firstOutput;
  let biasAt = expert * ${outputs}u;
  ${each(own, (j) => `${biasOf("gateBias", gate.bias, j)} ${biasOf("upBias", up.bias, j)}`)}
  ${rowsText(rows, true, count * outputs, cols / lane.unit)}
  ${loopText(lane, matrix, { rows, split: 1, ahead, width }, "", undefined)}
  ${each(rows, (j) => `sum${j} = sumOverSubgroup(sum${j}, lane);`)}
  if (member == 0u) {
    ${each(own, put)}
  }${store?.body ?? ""}
  if (group.x == 0u && group.y == 0u) {${routing.store}
  }`,
  });
}

/** The division of slots and rows among the lanes of a workgroup. */
interface DownShape {
  /** Subgroups with different slots, and with different rows. */
  readonly slotSubgroups: number;
  readonly rowSubgroups: number;
  /** Slots of a subgroup. */
  readonly turns: number;
}

function downShape(subgroups: number, slots: number): DownShape {
  const slotSubgroups = 2 ** Math.floor(Math.log2(Math.min(slots, subgroups)));
  return {
    slotSubgroups,
    rowSubgroups: subgroups / slotSubgroups,
    turns: Math.ceil(slots / slotSubgroups),
  };
}

/** down of all slots, combine, and the residual. `made`: the stored results of gate and up. */
export function expertDownKernel(
  experts: FusedExperts,
  down: ExpertMatmul,
  hasNarrow: boolean,
  made: RecordRow | undefined,
  context: MatmulContext,
): Kernel {
  const { route, combine, add } = experts;
  const { node, matrix, lane } = down;
  const { weight, bias } = node;
  const [count, outputs, cols] = weight.shape as [number, number, number];
  const { rows, subgroups, width, ahead } = shapeOf(down, context);
  const size = subgroups * width;
  const slots = route.routing.used;
  const { slotSubgroups, rowSubgroups, turns } = downShape(subgroups, slots);
  const groupRows = rowSubgroups * rows;
  const { exchange } = context;
  const source = { kind: "weight", weight, part: 0 } as const;
  const bindings: Binding[] = [{ name: "wide", type: "vec4u", source }];
  if (hasNarrow) {
    bindings.push({ name: "narrow", type: "u32", source: { ...source, plane: "narrow" } });
  }
  const slotLoads = made ? recordOfSlot(made) : preparedOfSlot(matrix);
  bindings.push(...slotLoads.bindings);
  bindings.push({ name: "routes", type: "f32", source: { kind: "value", value: route.out } });
  if (bias) {
    bindings.push({ name: "bias", type: "f32", source: { kind: "weight", weight: bias, part: 0 } });
  }
  if (add) {
    const value = add.residual;
    bindings.push({ name: "residual", type: "f32", source: { kind: "value", value } });
  }
  bindings.push(writes("result", add ? add.node.out : combine.out));
  const names = [matrix.dtype.name, made && "of record", "combine", add && "add"];
  return makeKernel({
    name: `matmul-experts ${names.filter(Boolean).join(" ")} [${count}, ${outputs}, ${cols}]`,
    bindings,
    enables: exchange.enables,
    size,
    declarations: `${exchange.declarations(size)}${dotsText(context.packedDots)}${lane.functions ?? ""}
${exchange.reduce("sumOverSubgroup", width, "sum")}
var<workgroup> totals: array<f32, ${slots * groupRows}>; // [slot][row]`,
    rows: combine.out.rows,
    maxRows: 1,
    sameBits: true,
    grid: () => [Math.ceil(outputs / groupRows), 1, 1],
    body: `
  let member = lane % ${width}u;
  let rowSubgroup = lane / ${width}u % ${rowSubgroups}u;
  let slotSubgroup = lane / ${width * rowSubgroups}u;
  let firstOfGroup = group.x * ${groupRows}u;
  let firstOutput = firstOfGroup + rowSubgroup * ${rows}u;
  let ownOutput = min(firstOfGroup + lane % ${groupRows}u, ${outputs - 1}u);
  ${add ? "let rest = residual[ownOutput];" : ""}
  ${each(turns, (turn) => {
    const wanted = `slotSubgroup + ${turn * slotSubgroups}u`;
    const isSure = (turn + 1) * slotSubgroups <= slots;
    return `{
    let slot = ${isSure ? wanted : `min(${wanted}, ${slots - 1}u)`};
    let expert = min(u32(routes[slot]), ${count - 1}u);
    let first = expert * ${outputs}u + firstOutput;
    let record = slot * ${slotLoads.words}u;
    ${each(rows, (j) => `let r${j} = min(first + ${j}u, ${count * outputs - 1}u) * ${cols / lane.unit}u;`)}
    ${bias ? each(rows, (j) => `let bias${j} = bias[min(first + ${j}u, ${count * outputs - 1}u)];`) : ""}
    ${loopText(lane, matrix, { rows, split: 1, ahead, width }, "", slotLoads)}
    ${each(rows, (j) => `sum${j} = sumOverSubgroup(sum${j}, lane);`)}
    if (member == 0u${isSure ? "" : ` && ${wanted} < ${slots}u`}) {
      ${each(rows, (j) => `totals[slot * ${groupRows}u + rowSubgroup * ${rows}u + ${j}u] = sum${j}${bias ? ` + bias${j}` : ""};`)}
    }
  }`;
  })}
  workgroupBarrier();
  if (lane < ${groupRows}u && firstOfGroup + lane < ${outputs}u) {
    var sum = 0.0;
    ${each(slots, (slot) => `sum = fma(totals[${slot * groupRows}u + lane], routes[${slots + slot}u], sum);`)}
    result[ownOutput] = sum${add ? " + rest" : ""};
  }`,
  });
}

/** The WGSL that loads the activations of a slot, which begin at word `record`. */
interface SlotLoads {
  readonly bindings: readonly Binding[];
  /** Words of a slot. */
  readonly words: number;
  quants(at: string): string;
  scale(at: string): string;
}

function recordOfSlot(row: RecordRow): SlotLoads {
  const source = { kind: "value", value: row.value } as const;
  return {
    bindings: [
      { name: "x", type: "vec4u", source },
      { name: "xWords", type: "u32", source },
    ],
    words: row.value.cols,
    quants: (at) => `x[record / 4u + ${at}]`,
    scale: (at) => `bitcast<f32>(xWords[record + ${scalesAt(row)}u + ${at}])`,
  };
}

function preparedOfSlot(matrix: Weight): SlotLoads {
  const { words } = preparedLayout(matrix);
  return { bindings: preparedBindings(matrix), words, ...preparedLoads(matrix) };
}

function writes(name: string, value: Value): Binding {
  return { name, type: "f32", source: { kind: "value", value }, writes: true };
}
