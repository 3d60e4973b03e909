// matmul_id and combine: matmuls with the matrices of a token's experts (route.ts), and the weighted sum of the results. One
// kernel each for any number of tokens, so that a token's result does not depend on the size of the batch.

import type { NodeOf, Value } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { activationText } from "./activations.ts";
import { type Binding, type Kernel, LANES, makeKernel, perItem, sumText } from "./kernel.ts";
import { groupGrid } from "./matvec.ts";
import { roundsActivations } from "./round-activations.ts";
import { weightText } from "./weights.ts";

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

/** `add`: the node that alone reads it, and its other operand. */
export function combineKernel(
  { x, routes, out }: NodeOf<"combine">,
  add?: { readonly node: NodeOf<"add">; readonly residual: Value },
): Kernel {
  const { cols } = out;
  const slots = routes.cols / 2;
  const read = (name: string, value: Value) =>
    ({ name, type: "f32", source: { kind: "value", value } }) as const;
  return makeKernel({
    name: `combine ${add ? "add " : ""}[${slots}, ${cols}]`,
    bindings: [
      read("x", x),
      read("routes", routes),
      ...(add ? [read("residual", add.residual)] : []),
      { ...read("result", add ? add.node.out : out), writes: true },
    ],
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * ${LANES}u + lane;
  if (i >= ${cols}u) { return; }
  var sum = 0.0;
  for (var slot = 0u; slot < ${slots}u; slot++) {
    let weight = routes[(2u * group.y + 1u) * ${slots}u + slot];
    sum = fma(x[(group.y * ${slots}u + slot) * ${cols}u + i], weight, sum);
  }
  result[group.y * ${cols}u + i] = sum${add ? ` + residual[group.y * ${cols}u + i]` : ""};`,
  });
}
