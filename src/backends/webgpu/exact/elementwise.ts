// The ops that compute each value by itself, with the roundings of the CPU's kernels; and rope, whose products are rounded before
// they are added.

import type { Activation, NodeOf, Value } from "../../../graph/graph.ts";
import { float, type Kernel, perItem } from "../wgsl/kernel.ts";
import { divideText, exponentialText, multiplyAddText, tangentText } from "./arithmetic.ts";
import { exactKernel, read, write, zero } from "./kernel.ts";
import type { ExactContext, ExactLower } from "./op.ts";

/** 2 sqrt(2 / pi), as in the CPU's gelu. */
const GELU = 2 * Math.sqrt(2 / Math.PI);

const activations: { readonly [A in Activation]: (x: string) => string } = {
  silu: (x) => `sigmoidTimes(${x}, ${x})`,
  gelu: (x) =>
    `sigmoidTimes(${x} * multiplyAdd(${x} * ${x}, ${float(0.044715 * GELU)}, ${float(GELU)}), ${x})`,
  relu: (x) => `max(${x}, 0.0)`,
  sigmoid: (x) => `sigmoidTimes(${x}, 1.0)`,
};

export const gate: ExactLower<"gate"> = ({ gate, up, out, activation }, context) => [
  elementwise(`gate ${activation}`, [gate, up], out, context, exponentialText, (a, b) => {
    return `(${activations[activation](a!)}) * ${b}`;
  }),
];

/** The CPU computes the gate of a row in double precision. */
export function gateReason({ gate, out }: NodeOf<"gate">): true | string {
  if (gate.cols !== out.cols) return "gates of one column, which the CPU computes with more digits";
  return out.cols % 4 === 0 || `rows of ${out.cols} values`;
}

export const activate: ExactLower<"activate"> = ({ x, out, activation }, context) => [
  elementwise(activation, [x], out, context, exponentialText, (a) => activations[activation](a!)),
];

export const softcap: ExactLower<"softcap"> = ({ x, out, cap }, context) => [
  elementwise("softcap", [x], out, context, tangentText, (a) => cappedText(a!, float(cap))),
];

/** cap * tanh(x / cap). */
export function cappedText(x: string, cap: string): string {
  return `${cap} * hyperbolicTangent(divide(${x}, ${cap}))`;
}

function elementwise(
  name: string,
  inputs: readonly Value[],
  out: Value,
  { arithmetic }: ExactContext,
  functions: string,
  expression: (...operands: string[]) => string,
): Kernel {
  const { cols } = out;
  return exactKernel({
    name: `${name} [${cols}]`,
    bindings: [...inputs.map((value, i) => read(`in${i}`, value)), write(out)],
    declarations: `${multiplyAddText(arithmetic, zero)}${divideText(zero)}${functions}`,
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * 64u + lane;
  if (i >= ${cols}u) { return; }
  let at = group.y * ${cols}u + i;
  ${inputs.map((_, n) => `let v${n} = in${n}[at];`).join(" ")}
  result[at] = ${expression(...inputs.map((_, n) => `v${n}`))};`,
  });
}

export const rope: ExactLower<"rope"> = (node, { batch, arithmetic }) => {
  const { x, out, headDim, rope } = node;
  const { cols } = x;
  const pairs = rope.dims / 2;
  const halves = headDim / 2;
  const [stride, distance] = rope.layout === "interleaved" ? [2, 1] : [1, pairs];
  const angles = batch.angles.find((area) => area.rope === rope && area.factors === node.factors)!;
  return [
    exactKernel({
      name: `rope ${rope.layout} [${cols}]`,
      bindings: [read("x", x), write(out)],
      declarations: multiplyAddText(arithmetic, zero),
      rows: out.rows,
      grid: perItem(cols / 2),
      body: `
  let item = group.x * 64u + lane;
  if (item >= ${cols / 2}u) { return; }
  let head = group.y * ${cols}u + (item / ${halves}u) * ${headDim}u;
  let pair = item % ${halves}u;
  if (pair >= ${pairs}u) {
    let at = head + pair * 2u;
    result[at] = x[at];
    result[at + 1u] = x[at + 1u];
    return;
  }
  let angle = ${angles.at}u + (group.y * ${pairs}u + pair) * 2u;
  let cosine = bitcast<f32>(batch[angle]);
  let sine = bitcast<f32>(batch[angle + 1u]);
  let at = head + pair * ${stride}u;
  let a = x[at];
  let b = x[at + ${distance}u];
  result[at] = rounded(a * cosine) - rounded(b * sine);
  result[at + ${distance}u] = rounded(a * sine) + rounded(b * cosine);`,
    }),
  ];
};
