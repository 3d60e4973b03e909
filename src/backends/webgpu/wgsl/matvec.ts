// matmul for few tokens: a workgroup computes 4 outputs of one token. Its lanes walk along the rows together, so that
// neighbours read neighbouring bytes, and their sums are added at the end.
//
// It works for every type, on the file's bytes, in float32. Types with a LaneDot have a faster kernel (matmul-gemv.ts).

import type { NodeOf } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { activationText } from "./activations.ts";
import { type Binding, type Grid, type Kernel, LANES, makeKernel } from "./kernel.ts";
import { roundsActivations } from "./round-activations.ts";
import { weightText } from "./weights.ts";

/** The most tokens that are computed one by one; more tokens share the weights that they read (matmul.ts). */
export const MATVEC_TOKENS = 4;

/** Outputs that a workgroup computes. */
const OUTPUTS = 4;

/** Workgroups in one dimension that every device allows. */
export const MOST_GROUPS = 65535;

export function matvecKernel(
  node: NodeOf<"matmul">,
  parts: readonly WeightPart[],
  part: number,
): Kernel {
  const { x, weight, out, bias } = node;
  const { rowStart, rows } = parts[part]!;
  const cols = x.cols;
  const text = weightText(weight, { kind: "weight", weight, part });
  const last = `${rows - 1}u`;
  return makeKernel({
    name: `matvec ${weight.dtype.name} [${rows}, ${cols}]`,
    bindings: [...text.bindings, ...valueBindings(node)],
    declarations: `${text.declarations}${activationText(cols)}
var<workgroup> partial: array<vec4f, ${LANES}>;
var<workgroup> folded: array<f32, 16>; // [quarter of the lanes][output]`,
    rows: out.rows,
    maxRows: MATVEC_TOKENS,
    grid: groupGrid(Math.ceil(rows / OUTPUTS)),
    body: `
  let first = (group.x + group.y * groups.x) * ${OUTPUTS}u;
  if (first >= ${rows}u) { return; }
  let token = group.z;
  var sums = vec4f();
  for (var i = lane * 4u; i < ${cols}u; i += ${LANES * 4}u) {
    let values = activation4(token, i);
    sums += vec4f(
      dot(weight4(first, i), values),
      dot(weight4(min(first + 1u, ${last}), i), values),
      dot(weight4(min(first + 2u, ${last}), i), values),
      dot(weight4(min(first + 3u, ${last}), i), values));
  }
  partial[lane] = sums;
  workgroupBarrier();
  // Adds in two steps: few barriers, short chains.
  if (lane < 16u) {
    let quarter = (lane >> 2u) * ${LANES / 4}u;
    var sum = 0.0;
    for (var j = 0u; j < ${LANES / 4}u; j++) { sum += partial[quarter + j][lane & 3u]; }
    folded[lane] = sum;
  }
  workgroupBarrier();
  let output = first + lane;
  if (lane < ${OUTPUTS}u && output < ${rows}u) {
    let sum = (folded[lane] + folded[lane + 4u]) + (folded[lane + 8u] + folded[lane + 12u]);
    let at = ${rowStart}u + output;
    result[token * ${out.cols}u + at] = sum${bias ? " + bias[at]" : ""};
  }`,
  });
}

/** So many workgroups, in two dimensions, for each token. */
export function groupGrid(groups: number): (tokens: number) => Grid {
  const across = Math.min(groups, MOST_GROUPS);
  return (tokens) => [across, Math.ceil(groups / across), tokens];
}

/** Activations (rounded where the weight's type asks for it), result and bias of a matmul. */
export function valueBindings({ x, weight, out, bias }: NodeOf<"matmul">): Binding[] {
  const bindings: Binding[] = [
    {
      name: "x",
      type: x.cols % 4 === 0 ? "vec4f" : "f32",
      source: roundsActivations(weight) ? { kind: "rounded" } : { kind: "value", value: x },
    },
    { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
  ];
  if (bias) {
    bindings.push({ name: "bias", type: "f32", source: { kind: "weight", weight: bias, part: 0 } });
  }
  return bindings;
}
