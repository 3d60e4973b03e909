// The elementwise ops: gate, activate, add, mul, scale, mul_weight, clamp, xielu, temperature, softcap; and select and slice, which
// copy rows and columns.

import type { Activation, GateActivation, NodeOf, Value } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { float, type Kernel, makeKernel, perItem } from "./kernel.ts";

/** exp and tanh of large numbers may be infinite or NaN on a device: arguments are clamped where results are constant. */
const activations: { readonly [A in Activation]: (x: string) => string } = {
  silu: (x) => `${x} / (1.0 + exp(min(-${x}, 80.0)))`,
  gelu: (x) =>
    `0.5 * ${x} * (1.0 + tanh(clamp(0.7978845608028654 * ${x} * (1.0 + 0.044715 * ${x} * ${x}), -15.0, 15.0)))`,
  relu: (x) => `max(${x}, 0.0)`,
  relu_squared: (x) => `max(${x}, 0.0) * max(${x}, 0.0)`,
  sigmoid: (x) => `1.0 / (1.0 + exp(min(-${x}, 80.0)))`,
  softplus: (x) => `max(${x}, 0.0) + log(1.0 + exp(max(-abs(${x}), -80.0)))`,
  exp: (x) => `exp(clamp(${x}, -80.0, 88.0))`,
  step: (x) => `select(0.0, 1.0, ${x} > 0.0)`,
};

/** WGSL of an activation, of a name. */
export function activationOf(activation: Activation, x: string): string {
  return activations[activation](x);
}

/** WGSL of the op gate, of names. */
export function gateText(activation: GateActivation, gate: string, up: string): string {
  if (activation === "swiglu_oai") return swigluOai(gate, up);
  return `(${activations[activation](gate)}) * ${up}`;
}

export function gateKernel(node: NodeOf<"gate">): Kernel {
  const { gate, up, out, activation } = node;
  if (gate.cols !== out.cols) return rowGateKernel(node);
  return elementwise(`gate ${activation}`, [gate, up], out, (a, b) => {
    return gateText(activation, a!, b!);
  });
}

type RowGate = Pick<NodeOf<"gate">, "gate" | "up" | "out"> & {
  readonly activation?: GateActivation;
};

/** gpt-oss: both operands are clamped at 7. */
function swigluOai(gate: string, up: string): string {
  const g = `min(${gate}, 7.0)`;
  return `${g} / (1.0 + exp(min(-1.702 * ${g}, 80.0))) * (clamp(${up}, -7.0, 7.0) + 1.0)`;
}

/** One gate for a row, or one factor. */
function rowGateKernel({ gate, up, out, activation }: RowGate): Kernel {
  const { cols } = out;
  return makeKernel({
    name: `${activation ? `gate ${activation}` : "mul"} of rows [${cols}]`,
    bindings: [
      { name: "gate", type: "f32", source: { kind: "value", value: gate } },
      { name: "up", type: "f32", source: { kind: "value", value: up } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * 64u + lane;
  if (i >= ${cols}u) { return; }
  let v = gate[group.y];
  let at = group.y * ${cols}u + i;
  result[at] = ${activation ? gateText(activation, "v", "up[at]") : "(v) * up[at]"};`,
  });
}

export function activateKernel({ x, out, activation }: NodeOf<"activate">): Kernel {
  return elementwise(activation, [x], out, (a) => activations[activation](a!));
}

export function addKernel({ a, b, out }: NodeOf<"add">): Kernel {
  return elementwise("add", [a, b], out, (left, right) => `${left} + ${right}`);
}

export function mulKernel({ a, b, out }: NodeOf<"mul">): Kernel {
  if (b.cols !== out.cols) return rowGateKernel({ gate: b, up: a, out });
  return elementwise("mul", [a, b], out, (left, right) => `${left} * ${right}`);
}

export function scaleKernel({ x, out, factor }: NodeOf<"scale">): Kernel {
  return elementwise("scale", [x], out, (a) => `${a} * ${float(factor)}`);
}

export function addWeightKernel(node: NodeOf<"add_weight">): Kernel {
  return withWeight("add_weight", node, (x, weight) => `${x} + ${weight}`);
}

export function mulWeightKernel(node: NodeOf<"mul_weight">): Kernel {
  return withWeight("mul_weight", node, (x, weight) => `${x} * ${weight}`);
}

/** Each value with its weight; a weight that is shorter than a row is for each part of it. */
function withWeight(
  name: string,
  { x, weight, out }: NodeOf<"add_weight"> | NodeOf<"mul_weight">,
  expression: (x: string, weight: string) => string,
): Kernel {
  const { cols } = out;
  const size = weight.shape[0]!;
  const index = size === cols ? "i" : `i % ${size}u`;
  return makeKernel({
    name: `${name} ${size} [${cols}]`,
    bindings: [
      { name: "x", type: "f32", source: { kind: "value", value: x } },
      { name: "weight", type: "f32", source: { kind: "weight", weight, part: 0 } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * 64u + lane;
  if (i >= ${cols}u) { return; }
  let at = group.y * ${cols}u + i;
  result[at] = ${expression("x[at]", `weight[${index}]`)};`,
  });
}

export function softcapKernel({ x, out, cap }: NodeOf<"softcap">): Kernel {
  const limit = float(cap);
  return elementwise("softcap", [x], out, (a) => {
    return `${limit} * tanh(clamp(${a} / ${limit}, -15.0, 15.0))`;
  });
}

export function clampKernel({ x, out, limit }: NodeOf<"clamp">): Kernel {
  const most = float(limit);
  return elementwise("clamp", [x], out, (a) => `clamp(${a}, -${most}, ${most})`);
}

export function xieluKernel({ x, out, alphaN, alphaP, beta, eps }: NodeOf<"xielu">): Kernel {
  return elementwise("xielu", [x], out, (a) => {
    const above = `${float(alphaP)} * ${a} * ${a} + ${float(beta)} * ${a}`;
    // Near 0, e^m - 1 loses digits: the first terms of its series do not.
    const m = `min(${a}, ${float(eps)})`;
    const small = `${m} * (1.0 + ${m} * (0.5 + ${m} * (0.16666667 + ${m} * 0.041666668)))`;
    const below = `(select(exp(max(${m}, -80.0)) - 1.0, ${small}, ${m} > -0.05) - ${a}) * ${float(alphaN)} + ${float(beta)} * ${a}`;
    return `select(${below}, ${above}, ${a} > 0.0)`;
  });
}

export function temperatureKernel(
  { x, out, scale, span, offset }: NodeOf<"temperature">,
  batch: BatchLayout,
): Kernel {
  const { cols } = out;
  return makeKernel({
    name: `temperature [${cols}]`,
    bindings: [
      { name: "x", type: "f32", source: { kind: "value", value: x } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * 64u + lane;
  if (i >= ${cols}u) { return; }
  let at = group.y * ${cols}u + i;
  let spans = floor((f32(batch[${batch.positions}u + group.y]) + ${float(offset)}) / ${float(span)});
  result[at] = x[at] * (1.0 + ${float(scale)} * log(1.0 + spans));`,
  });
}

export function selectKernel({ x, out }: NodeOf<"select">, batch: BatchLayout): Kernel {
  const { cols } = x;
  return makeKernel({
    name: `select [${cols}]`,
    bindings: [
      { name: "x", type: "f32", source: { kind: "value", value: x } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: "outputs",
    grid: perItem(cols),
    body: `
  let i = group.x * 64u + lane;
  if (i >= ${cols}u) { return; }
  result[group.y * ${cols}u + i] = x[batch[${batch.outputRows}u + group.y] * ${cols}u + i];`,
  });
}

export function concatKernel({ a, b, out, groups }: NodeOf<"concat">): Kernel {
  const { cols } = out;
  const [first, second] = [a.cols / groups, b.cols / groups];
  return makeKernel({
    name: `concat [${a.cols}, ${b.cols}]`,
    bindings: [
      { name: "a", type: "f32", source: { kind: "value", value: a } },
      { name: "b", type: "f32", source: { kind: "value", value: b } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * 64u + lane;
  if (i >= ${cols}u) { return; }
  let part = group.y * ${groups}u + i / ${first + second}u;
  let within = i % ${first + second}u;
  let at = group.y * ${cols}u + i;
  if (within < ${first}u) { result[at] = a[part * ${first}u + within]; }
  else { result[at] = b[part * ${second}u + within - ${first}u]; }`,
  });
}

export function sliceKernel({ x, out, groups, from }: NodeOf<"slice">): Kernel {
  const { cols } = out;
  const count = cols / groups;
  return makeKernel({
    name: `slice [${cols} of ${x.cols}]`,
    bindings: [
      { name: "x", type: "f32", source: { kind: "value", value: x } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * 64u + lane;
  if (i >= ${cols}u) { return; }
  result[group.y * ${cols}u + i] = x[group.y * ${x.cols}u + i / ${count}u * ${x.cols / groups}u + ${from}u + i % ${count}u];`,
  });
}

function elementwise(
  name: string,
  inputs: readonly Value[],
  out: Value,
  expression: (...operands: string[]) => string,
): Kernel {
  const { cols } = out;
  return makeKernel({
    name: `${name} [${cols}]`,
    bindings: [
      ...inputs.map((value, i) => ({
        name: `in${i}`,
        type: "f32",
        source: { kind: "value", value } as const,
      })),
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: out.rows,
    grid: perItem(cols),
    body: itemBody(inputs.length, cols, expression),
  });
}

/** A thread computes one value of a row from the same index of `in0`, `in1`, ... */
export function itemBody(
  inputs: number,
  cols: number,
  expression: (...operands: string[]) => string,
): string {
  const operands = Array.from({ length: inputs }, (_, n) => `v${n}`);
  return `
  let i = group.x * 64u + lane;
  if (i >= ${cols}u) { return; }
  let at = group.y * ${cols}u + i;
  ${operands.map((operand, n) => `let ${operand} = in${n}[at];`).join(" ")}
  result[at] = ${expression(...operands)};`;
}
