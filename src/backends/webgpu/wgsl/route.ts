// route: the experts of a token, and their weights. A workgroup routes a token, and a token's result does not depend on the size
// of the batch. Every lane takes some experts: an expert's slot is the number of better ones, so that no slot waits for another.

import type { ExpertGroups, NodeOf, Routing } from "../../../graph/graph.ts";
import { type Arrival, noArrival } from "./arrival.ts";
import {
  type Binding,
  float,
  type Kernel,
  LANES,
  makeKernel,
  perItem,
  reduceText,
  sumText,
} from "./kernel.ts";

/** The most experts whose scores fit the workgroup memory of every device. */
export const MOST_EXPERTS = 1024;

/** Lanes of a workgroup that every device has. */
const MOST_LANES = 256;

/** Below every rank; a NaN has it, as in graph/route.ts. */
const LOWEST = "-3.0e38";

/** The smallest divisor of weights that are normalised (graph/route.ts). */
const SMALLEST_SUM = 6.103515625e-5;

export function routeKernel(node: NodeOf<"route">): Kernel {
  const { out, logits, routing } = node;
  if (routing.gating === "all") return routeAllKernel(node);
  const lanes = lanesFor(logits.cols);
  const text = routeText(node, lanes);
  return makeKernel({
    name: `route ${routing.gating} [${routing.used} of ${logits.cols}]`,
    bindings: [...text.bindings, text.result],
    size: lanes,
    declarations: text.declarations,
    rows: out.rows,
    grid: (rows) => [1, rows, 1],
    body: `
  let token = group.y;
  ${text.load}${text.choose}
  ${text.store}`,
  });
}

/** Routing of a token by a workgroup. */
export interface RouteText {
  readonly bindings: readonly Binding[];
  readonly declarations: string;
  /** Loads the logits of `token`. */
  readonly load: string;
  /**
   * After that: sets `chosen` (by slot) in workgroup memory, and the values that store() needs; ends with a barrier. The whole workgroup
   * executes it.
   */
  readonly choose: string;
  /** Stores the routes of `token` in this binding. */
  readonly store: string;
  readonly result: Binding;
}

/** With `lanes` lanes, a power of two. Gating is not "all". */
export function routeText(
  { logits, bias, scales, routing, out }: NodeOf<"route">,
  lanes: number,
  { declare, loads }: Arrival = noArrival,
): RouteText {
  const experts = logits.cols;
  const { used, groups, sharing = 1 } = routing;
  /** Instead of the expert, where some share one. */
  const matrix = sharing === 1 ? "e" : `e / ${sharing}u`;
  const bindings: Binding[] = [
    { name: "logits", type: "f32", source: { kind: "value", value: logits } },
  ];
  for (const [name, weight] of Object.entries({ choiceBias: bias, choiceScales: scales })) {
    if (weight) bindings.push({ name, type: "f32", source: { kind: "weight", weight, part: 0 } });
  }
  const each = (text: string) => eachText("e", experts, lanes, text);
  const logit = (name: string, at: string): string =>
    declare
      ? `${declare(name, "f32")} ${loads(`${name} = logits[${at}];`)}`
      : `var ${name} = logits[${at}];`;
  return {
    bindings,
    result: { name: "routes", type: "f32", source: { kind: "value", value: out }, writes: true },
    declarations: `
var<workgroup> scores: array<f32, ${experts}>; // for weighing
var<workgroup> ranks: array<f32, ${experts}>; // for choosing
var<workgroup> chosen: array<u32, ${used}>; // by slot
// Shaders may take it that there is no NaN: only its bits tell.
fn isNan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn power(x: f32) -> f32 { return select(exp(x), x, isNan(x)); } // e^x; exp() of NaN may be a number
fn rankOf(x: f32) -> f32 { if (isNan(x)) { return ${LOWEST}; } return max(x, ${LOWEST}); }
// How many of the experts from number \`first\` on are better: they have a larger rank, or the same and a smaller number.
fn betterThan(own: u32, first: u32, count: u32) -> u32 {
  let rank = ranks[own];
  var better = 0u;
  for (var e = first; e < first + count; e++) {
    let other = ranks[e];
    better += select(0u, 1u, (other > rank) | ((other == rank) & (e < own)));
  }
  return better;
}${groups ? groupsDeclarations(groups) : ""}${routing.gating === "softmax" ? `\nvar<workgroup> partial: array<f32, ${lanes}>;` : ""}`,
    load: `
  let firstLogit = token * ${experts}u;
  ${each(`${logit("logit", "firstLogit + e")} scores[e] = logit;${bias ? " ranks[e] = choiceBias[e];" : ""}`)}${routing.gating === "softmax" ? `\n  ${logit("largest", `firstLogit + min(lane, ${experts - 1}u)`)}` : ""}`,
    choose: `${scoresText(routing, experts, lanes)}
  ${each(`ranks[e] = rankOf(scores[e]${bias ? " + ranks[e]" : ""});`)}
  workgroupBarrier();${groups ? groupsText(groups, experts, lanes) : ""}
  ${each(`
    let slot = betterThan(e, 0u, ${experts}u);
    if (slot < ${used}u) { chosen[slot] = ${matrix}; }
  `)}
  workgroupBarrier();`,
    store: `${weightsText(routing)}
  let routeAt = token * ${2 * used}u;
  ${eachText(
    "s",
    used,
    lanes,
    `
    routes[routeAt + s] = f32(chosen[s]);
    routes[routeAt + ${used}u + s] = ${weightText(routing)} * factor${scales ? " * choiceScales[chosen[s]]" : ""};
  `,
  )}`,
  };
}

/** Whether sums of scores have the same bits with `lanes` lanes as in routeKernel(). */
export function routesWith({ logits }: NodeOf<"route">, lanes: number): boolean {
  return lanes >= lanesFor(logits.cols);
}

/** A lane for each expert, or several experts for a lane. reduceText() halves the lanes. */
function lanesFor(experts: number): number {
  return Math.max(LANES, Math.min(MOST_LANES, 2 ** Math.ceil(Math.log2(experts))));
}

/** WGSL for each of `count` items, shared out among the lanes. */
function eachText(name: string, count: number, lanes: number, text: string): string {
  return count <= lanes
    ? `if (lane < ${count}u) { let ${name} = lane; ${text} }`
    : `for (var ${name} = lane; ${name} < ${count}u; ${name} += ${lanes}u) { ${text} }`;
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

/** The two best ranks of each group. */
function groupsDeclarations({ count }: ExpertGroups): string {
  return `
var<workgroup> best: array<f32, ${count}>;
var<workgroup> second: array<f32, ${count}>;
fn groupRank(g: u32) -> f32 { return max(best[g] + second[g], ${LOWEST}); }`;
}

/** Lowers the ranks of experts outside of the best groups below all others. */
function groupsText({ count, used }: ExpertGroups, experts: number, lanes: number): string {
  const size = experts / count;
  const each = (text: string) => eachText("e", experts, lanes, text);
  return `
  ${each(`
    let place = betterThan(e, e / ${size}u * ${size}u, ${size}u);
    if (place == 0u) { best[e / ${size}u] = ranks[e]; }
    if (place == 1u) { second[e / ${size}u] = ranks[e]; }
  `)}
  workgroupBarrier();
  ${each(`
    let own = e / ${size}u;
    let rank = groupRank(own);
    var better = 0u;
    for (var g = 0u; g < ${count}u; g++) {
      let other = groupRank(g);
      better += select(0u, 1u, (other > rank) | ((other == rank) & (g < own)));
    }
    if (better >= ${used}u) { ranks[e] = ${LOWEST}; }
  `)}
  workgroupBarrier();`;
}

/** Turns the logits in \`scores\` into scores: each lane those of its own experts. */
function scoresText({ gating }: Routing, experts: number, lanes: number): string {
  if (gating === "softmax_chosen" || gating === "none") return "";
  const each = (text: string) => eachText("e", experts, lanes, text);
  if (gating === "sigmoid") {
    return `
  ${each("if (!isNan(scores[e])) { scores[e] = 1.0 / (1.0 + exp(min(-scores[e], 80.0))); }")}`;
  }
  return `
  ${each("largest = max(largest, scores[e]);")}
  partial[lane] = largest;${reduceText(lanes, (a, b) => `max(${a}, ${b})`)}
  let top = partial[0];
  workgroupBarrier();
  var sum = 0.0;
  ${each("scores[e] = power(scores[e] - top); sum += scores[e];")}
  partial[lane] = sum;${sumText(lanes)}
  let inverse = 1.0 / partial[0];
  ${each("scores[e] *= inverse;")}`;
}

/** The part that all weights of a token have in common; each lane computes it, in the order of the slots. */
function weightsText({ gating, used, normalise, scale }: Routing): string {
  const each = (text: string) => `for (var s = 0u; s < ${used}u; s++) { ${text} }`;
  const ofChosen =
    gating === "softmax_chosen"
      ? `
  var highest = scores[chosen[0]];
  ${each("highest = max(highest, scores[chosen[s]]);")}
  var all = 0.0;
  ${each("all += power(scores[chosen[s]] - highest);")}`
      : "";
  const factor = normalise
    ? `
  var weightSum = 0.0;
  ${each(`weightSum += ${weightText({ gating })};`)}
  let divisor = select(max(weightSum, ${float(SMALLEST_SUM)}), weightSum, isNan(weightSum));
  let factor = ${float(scale)} / divisor;`
    : `
  let factor = ${float(scale)};`;
  return ofChosen + factor;
}

/** The weight of slot \`s\`, without the factor that all have. */
function weightText({ gating }: Pick<Routing, "gating">): string {
  return gating === "softmax_chosen"
    ? "power(scores[chosen[s]] - highest) / all"
    : "scores[chosen[s]]";
}
