// The ops that compute each value by itself, with the roundings of the CPU's kernels; and rope, whose products are rounded before
// they are added.

import type { Activation, GateActivation, NodeOf, Value } from "../../../graph/graph.ts";
import { itemBody } from "../wgsl/elementwise.ts";
import { float, type Kernel, perItem } from "../wgsl/kernel.ts";
import { ropeBody } from "../wgsl/rope.ts";
import {
  divideText,
  exponentialText,
  multiplyAddText,
  softplusText,
  tangentText,
} from "./arithmetic.ts";
import { exactKernel, read, write, zero } from "./kernel.ts";
import type { ExactContext, ExactLower } from "./op.ts";

/** 2 sqrt(2 / pi), as in the CPU's gelu. */
const GELU = 2 * Math.sqrt(2 / Math.PI);

const activations: { readonly [A in Activation]: (x: string) => string } = {
  silu: (x) => `sigmoidTimes(${x}, ${x})`,
  gelu: (x) =>
    `sigmoidTimes(${x} * multiplyAdd(rounded(${x} * ${x}), ${float(0.044715 * GELU)}, ${float(GELU)}), ${x})`,
  relu: (x) => `max(${x}, 0.0)`,
  relu_squared: (x) => `rounded(max(${x}, 0.0) * max(${x}, 0.0))`,
  sigmoid: (x) => `sigmoidTimes(${x}, 1.0)`,
  softplus: (x) => `softplus(${x})`,
  exp: (x) => `exponential(${x})`,
  step: (x) => `select(0.0, 1.0, ${x} > 0.0)`,
};

export const gate: ExactLower<"gate"> = ({ gate, up, out, activation }, context) => [
  elementwise(`gate ${activation}`, [gate, up], out, context, functionsOf(activation), (a, b) => {
    if (activation === "swiglu_oai") {
      const g = `min(${a}, 7.0)`;
      return `sigmoidTimes(${g} * 1.702, ${g}) * (max(min(${b}, 7.0), -7.0) + 1.0)`;
    }
    return `(${activations[activation](a!)}) * ${b}`;
  }),
];

/** The CPU computes the gate of a row in double precision. */
export function gateReason({ gate, out }: NodeOf<"gate">): true | string {
  if (gate.cols !== out.cols) return "gates of one column, which the CPU computes with more digits";
  return out.cols % 4 === 0 || `rows of ${out.cols} values`;
}

export const activate: ExactLower<"activate"> = ({ x, out, activation }, context) => [
  elementwise(activation, [x], out, context, functionsOf(activation), (a) =>
    activations[activation](a!),
  ),
];

function functionsOf(activation: GateActivation): string {
  return activation === "softplus" ? exponentialText + softplusText : exponentialText;
}

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
    declarations: `${multiplyAddText(arithmetic, zero)}${divideText(arithmetic, zero)}${functions}`,
    rows: out.rows,
    grid: perItem(cols),
    body: itemBody(inputs.length, cols, expression),
  });
}

export const rope: ExactLower<"rope"> = (node, { batch, arithmetic }) => {
  const { x, out, rope } = node;
  return [
    exactKernel({
      name: `rope ${rope.layout} [${x.cols}]`,
      bindings: [read("x", x), write(out)],
      declarations: multiplyAddText(arithmetic, zero),
      rows: out.rows,
      grid: perItem(x.cols / 2),
      body: ropeBody(node, batch, (product) => `rounded(${product})`),
    }),
  ];
};
