// matmul for few tokens: a workgroup computes 4 outputs of one token. Its lanes walk along the rows side by side, so that
// neighbours read neighbouring bytes, and add up at the end.
//
// Works for every type, on the file's bytes; activations stay floats (docs/gpu.md says what that means for results).

import type { NodeOf } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { type Binding, type Kernel, LANES, makeKernel, sumText } from "./kernel.ts";
import { weightText } from "./weights.ts";

/** Up to so many tokens are computed one by one; more share the weights they read (matmul.ts). */
export const MATVEC_TOKENS = 4;

/** Outputs that a workgroup computes. */
const OUTPUTS = 4;

/** Workgroups in one direction: the least that every device allows. */
const MOST_GROUPS = 65535;

export function matvecKernel(
  node: NodeOf<"matmul">,
  parts: readonly WeightPart[],
  part: number,
): Kernel {
  const { x, weight, out, bias } = node;
  const { rowStart, rows } = parts[part]!;
  const cols = x.cols;
  const text = weightText(weight, part);
  const groups = Math.ceil(rows / OUTPUTS);
  const last = `${rows - 1}u`;
  return makeKernel({
    name: `matvec ${weight.dtype.name} [${rows}, ${cols}]`,
    bindings: [...text.bindings, ...valueBindings(node)],
    declarations: `${text.declarations}${activationText(cols)}
var<workgroup> partial: array<vec4f, ${LANES}>;`,
    rows: out.rows,
    maxRows: MATVEC_TOKENS,
    grid: (tokens) => [
      Math.min(groups, MOST_GROUPS),
      Math.ceil(groups / Math.min(groups, MOST_GROUPS)),
      tokens,
    ],
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
  partial[lane] = sums;${sumText(LANES)}
  let output = first + lane;
  if (lane < ${OUTPUTS}u && output < ${rows}u) {
    let at = ${rowStart}u + output;
    result[token * ${out.cols}u + at] = partial[0][lane]${bias ? " + bias[at]" : ""};
  }`,
  });
}

/** Activations, result and bias of a product. */
export function valueBindings({ x, out, bias }: NodeOf<"matmul">): Binding[] {
  const bindings: Binding[] = [
    {
      name: "x",
      type: x.cols % 4 === 0 ? "vec4f" : "f32",
      source: { kind: "value", value: x },
    },
    { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
  ];
  if (bias) {
    bindings.push({ name: "bias", type: "f32", source: { kind: "weight", weight: bias, part: 0 } });
  }
  return bindings;
}

/** `fn activation4(token, i)`: four activations from column i on; zeros after the last. */
export function activationText(cols: number): string {
  if (cols % 4 === 0) {
    return `
fn activation4(token: u32, i: u32) -> vec4f { return x[token * ${cols / 4}u + i / 4u]; }`;
  }
  return `
fn activation(token: u32, i: u32) -> f32 {
  if (i >= ${cols}u) { return 0.0; }
  return x[token * ${cols}u + i];
}
fn activation4(token: u32, i: u32) -> vec4f {
  return vec4f(activation(token, i), activation(token, i + 1u), activation(token, i + 2u), activation(token, i + 3u));
}`;
}
