// route, matmul_id and combine: the experts of a token, matmuls with their matrices, and the weighted sum of the results. One
// kernel each for any number of tokens, so that a token's result does not depend on the size of the batch.

import type { ExpertGroups, NodeOf, Routing } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { activationText } from "./activations.ts";
import { type Binding, float, type Kernel, LANES, makeKernel, perItem, sumText } from "./kernel.ts";
import { groupGrid } from "./matvec.ts";
import { roundsActivations } from "./round-activations.ts";
import { weightText } from "./weights.ts";

/** The most experts whose scores fit the workgroup memory of every device. */
export const MOST_EXPERTS = 1024;

/** Below every rank; a NaN has it, as in graph/route.ts. */
const LOWEST = "-3.0e38";

/** The smallest divisor of weights that are normalised (graph/route.ts). */
const SMALLEST_SUM = 6.103515625e-5;

/** A workgroup routes a token: lanes score experts in parallel, then find the largest remaining score, slot by slot. */
export function routeKernel(node: NodeOf<"route">): Kernel {
  const { logits, bias, scales, routing, out } = node;
  if (routing.gating === "all") return routeAllKernel(node);
  const experts = logits.cols;
  const { used } = routing;
  const bindings: Binding[] = [
    { name: "logits", type: "f32", source: { kind: "value", value: logits } },
    { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
  ];
  for (const [name, weight] of Object.entries({ bias, scales })) {
    if (weight) bindings.push({ name, type: "f32", source: { kind: "weight", weight, part: 0 } });
  }
  return makeKernel({
    name: `route ${routing.gating} [${used} of ${experts}]`,
    bindings,
    declarations: `
const NONE = 0xffffffffu;
var<workgroup> partial: array<f32, ${LANES}>;
var<workgroup> bests: array<u32, ${LANES}>;
var<workgroup> scores: array<f32, ${experts}>; // for weighing
var<workgroup> ranks: array<f32, ${experts}>; // for choosing
var<workgroup> chosen: array<u32, ${used}>;${groupsMemory(routing)}
// Shaders may take it that there is no NaN: only its bits tell.
fn isNan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn power(x: f32) -> f32 { return select(exp(x), x, isNan(x)); } // e^x; exp() of NaN may be a number
fn rankOf(x: f32) -> f32 { if (isNan(x)) { return ${LOWEST}; } return max(x, ${LOWEST}); }
// The better of two experts: the larger rank, the first of equal ones.
fn better(a: u32, b: u32) -> u32 {
  if (a == NONE) { return b; }
  if (b == NONE || ranks[a] > ranks[b] || (ranks[a] == ranks[b] && a < b)) { return a; }
  return b;
}`,
    rows: out.rows,
    grid: (rows) => [1, rows, 1],
    body: `
  let first = group.y * ${experts}u;
  for (var e = lane; e < ${experts}u; e += ${LANES}u) { scores[e] = logits[first + e]; }
  workgroupBarrier();${scoresText(routing, experts)}
  for (var e = lane; e < ${experts}u; e += ${LANES}u) { ranks[e] = rankOf(scores[e]${bias ? " + bias[e]" : ""}); }
  workgroupBarrier();${routing.groups ? groupsText(routing.groups, experts) : ""}
  for (var slot = 0u; slot < ${used}u; slot++) {
    var best = NONE;
    for (var e = lane; e < ${experts}u; e += ${LANES}u) {
      var isFree = true;
      for (var s = 0u; s < slot; s++) { if (chosen[s] == e) { isFree = false; } }
      if (isFree) { best = better(best, e); }
    }
    bests[lane] = best;
    workgroupBarrier();
    if (lane == 0u) {
      for (var i = 1u; i < ${LANES}u; i++) { best = better(best, bests[i]); }
      chosen[slot] = best;
    }
    workgroupBarrier();
  }
  if (lane > 0u) { return; }
  let at = group.y * ${2 * used}u;${sharingText(routing)}
  ${weightsText(routing)}
  for (var s = 0u; s < ${used}u; s++) {
    result[at + s] = f32(chosen[s]);
    result[at + ${used}u + s] = scores[chosen[s]] * factor${scales ? " * scales[chosen[s]]" : ""};
  }`,
  });
}

/** Every expert in its order, with a weight of 1. */
function routeAllKernel({ logits: { cols }, out }: NodeOf<"route">): Kernel {
  return makeKernel({
    name: `route all [${cols}]`,
    bindings: [
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * ${LANES}u + lane;
  if (i >= ${cols}u) { return; }
  let at = group.y * ${2 * cols}u + i;
  result[at] = f32(i);
  result[at + ${cols}u] = 1.0;`,
  });
}

/** The score of each group. */
function groupsMemory({ groups }: Routing): string {
  return groups ? `\nvar<workgroup> sums: array<f32, ${groups.count}>;` : "";
}

/** Lowers the ranks of experts outside of the best groups below all others: a lane adds up the two best ranks of a group. */
function groupsText({ count, used }: ExpertGroups, experts: number): string {
  const size = experts / count;
  return `
  for (var own = lane; own < ${count}u; own += ${LANES}u) {
    var best = vec2f(${LOWEST});
    for (var e = own * ${size}u; e < own * ${size}u + ${size}u; e++) {
      if (ranks[e] > best.x) { best = vec2f(ranks[e], best.x); } else { best.y = max(best.y, ranks[e]); }
    }
    sums[own] = max(best.x + best.y, ${LOWEST});
  }
  workgroupBarrier();
  for (var own = lane; own < ${count}u; own += ${LANES}u) {
    var before = 0u; // groups that are better
    for (var other = 0u; other < ${count}u; other++) {
      if (sums[other] > sums[own] || (sums[other] == sums[own] && other < own)) { before++; }
    }
    if (before >= ${used}u) {
      for (var e = own * ${size}u; e < own * ${size}u + ${size}u; e++) { ranks[e] = ${LOWEST}; }
    }
  }
  workgroupBarrier();`;
}

/** Turns the logits in \`scores\` into scores. */
function scoresText({ gating }: Routing, experts: number): string {
  if (gating === "softmax_chosen" || gating === "none") return "";
  const each = (text: string) => `for (var e = lane; e < ${experts}u; e += ${LANES}u) { ${text} }`;
  if (gating === "sigmoid") {
    return `
  ${each("if (!isNan(scores[e])) { scores[e] = 1.0 / (1.0 + exp(min(-scores[e], 80.0))); }")}`;
  }
  return `
  var top = scores[0];
  for (var e = 1u; e < ${experts}u; e++) { top = max(top, scores[e]); }
  workgroupBarrier();
  var sum = 0.0;
  ${each("scores[e] = power(scores[e] - top); sum += scores[e];")}
  partial[lane] = sum;${sumText(LANES)}
  let inverse = 1.0 / partial[0];
  ${each("scores[e] *= inverse;")}`;
}

/** For one lane: matrices instead of experts, where some share one. */
function sharingText({ used, sharing = 1 }: Routing): string {
  return sharing === 1
    ? ""
    : `\n  for (var s = 0u; s < ${used}u; s++) { chosen[s] /= ${sharing}u; }`;
}

/** For one lane: the weights of the chosen experts, and \`factor\`, by which all of them are multiplied. */
function weightsText({ gating, used, normalise, scale }: Routing): string {
  const each = (text: string) => `for (var s = 0u; s < ${used}u; s++) { ${text} }`;
  const ofChosen =
    gating === "softmax_chosen"
      ? `
  var largest = scores[chosen[0]];
  ${each("largest = max(largest, scores[chosen[s]]);")}
  var all = 0.0;
  ${each("scores[chosen[s]] = power(scores[chosen[s]] - largest); all += scores[chosen[s]];")}
  ${each("scores[chosen[s]] /= all;")}`
      : "";
  const divisor = normalise
    ? `
  var weightSum = 0.0;
  ${each("weightSum += scores[chosen[s]];")}
  let divisor = select(max(weightSum, ${float(SMALLEST_SUM)}), weightSum, isNan(weightSum));
  let factor = ${float(scale)} / divisor;`
    : `
  let factor = ${float(scale)};`;
  return ofChosen + divisor;
}

/** Outputs that a workgroup computes. */
const OUTPUTS = 4;

/**
 * A workgroup computes 4 outputs of one slot of a token, as in matvec.ts; it skips rows of other parts of the weight. `slots`: so
 * many experts are in GPU memory, and the kernel skips those that are not in this pass (experts/expert-slots.ts).
 */
export function matmulIdKernel(
  node: NodeOf<"matmul_id">,
  parts: readonly WeightPart[],
  part: number,
  slotCount?: number,
): Kernel {
  const { x, routes, weight, bias, out } = node;
  const [experts, outputs, cols] = weight.shape as [number, number, number];
  const slots = routes.cols / 2;
  const { rowStart, rows } = parts[part]!;
  const text = weightText(weight, { kind: "weight", weight, part });
  const grid = groupGrid(Math.ceil(outputs / OUTPUTS));
  const place = slotCount === undefined ? "expert" : "place";
  const placeText =
    slotCount === undefined
      ? ""
      : `\n  let place = slots[expert];\n  if (place >= ${slotCount}u) { return; }`;
  const row = x.cols === cols ? "token" : "pair";
  const each = (j: number) => `dot(weight4(min(first + ${j}u, ${rows - 1}u), i), values)`;
  return makeKernel({
    name: `matmul_id ${weight.dtype.name} [${experts}, ${outputs}, ${cols}]`,
    bindings: [
      ...text.bindings,
      ...matmulIdBindings(node),
      ...(slotCount === undefined
        ? []
        : [{ name: "slots", type: "u32", source: { kind: "slots", routes } } as const]),
    ],
    declarations: `${text.declarations}${activationText(cols)}
var<workgroup> partial: array<vec4f, ${LANES}>;`,
    rows: out.rows,
    grid: (tokens) => grid(tokens * slots),
    body: `
  let output = (group.x + group.y * groups.x) * ${OUTPUTS}u;
  if (output >= ${outputs}u) { return; }
  let pair = group.z;
  let token = pair / ${slots}u;
  let expert = min(u32(routes[token * ${2 * slots}u + pair % ${slots}u]), ${experts - 1}u);${placeText}
  let own = ${place} * ${outputs}u + output;
  if (own + ${OUTPUTS}u <= ${rowStart}u || own >= ${rowStart + rows}u) { return; }
  let first = max(own, ${rowStart}u) - ${rowStart}u;
  var sums = vec4f();
  for (var i = lane * 4u; i < ${cols}u; i += ${LANES * 4}u) {
    let values = activation4(${row}, i);
    sums += vec4f(${[0, 1, 2, 3].map(each).join(", ")});
  }
  partial[lane] = sums;${sumText(LANES)}
  // Number of this lane's row in the part, and of its output.
  let mine = first + lane;
  let at = mine + ${rowStart}u - ${place} * ${outputs}u;
  if (lane < ${OUTPUTS}u && mine < ${rows}u && at < min(output + ${OUTPUTS}u, ${outputs}u)) {
    result[pair * ${outputs}u + at] = partial[0][lane]${bias ? ` + bias[expert * ${outputs}u + at]` : ""};
  }`,
  });
}

function matmulIdBindings({ x, routes, weight, bias, out }: NodeOf<"matmul_id">): Binding[] {
  const bindings: Binding[] = [
    {
      name: "x",
      type: weight.shape[2]! % 4 === 0 ? "vec4f" : "f32",
      source: roundsActivations(weight) ? { kind: "rounded" } : { kind: "value", value: x },
    },
    { name: "routes", type: "f32", source: { kind: "value", value: routes } },
    { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
  ];
  if (bias) {
    bindings.push({ name: "bias", type: "f32", source: { kind: "weight", weight: bias, part: 0 } });
  }
  return bindings;
}

export function combineKernel({ x, routes, out }: NodeOf<"combine">): Kernel {
  const { cols } = out;
  const slots = routes.cols / 2;
  return makeKernel({
    name: `combine [${slots}, ${cols}]`,
    bindings: [
      { name: "x", type: "f32", source: { kind: "value", value: x } },
      { name: "routes", type: "f32", source: { kind: "value", value: routes } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * ${LANES}u + lane;
  if (i >= ${cols}u) { return; }
  var sum = 0.0;
  for (var slot = 0u; slot < ${slots}u; slot++) {
    let weight = routes[(2u * group.y + 1u) * ${slots}u + slot];
    sum += x[(group.y * ${slots}u + slot) * ${cols}u + i] * weight;
  }
  result[group.y * ${cols}u + i] = sum;`,
  });
}
