// rms_norm, layer_norm and softmax: a workgroup computes a row, or for norms a head of a row. The sums of 64 lanes are added
// pairwise.

import type { NodeOf, Value, Weight } from "../../../graph/graph.ts";
import {
  type Binding,
  float,
  type Kernel,
  LANES,
  makeKernel,
  reduceText,
  sumText,
} from "./kernel.ts";

export function rmsNormKernel(node: NodeOf<"rms_norm">): Kernel {
  const { x, weight, out, eps } = node;
  const size = weight.shape[0]!;
  const perRow = x.cols / size;
  return makeKernel({
    name: `rms_norm [${size}]`,
    bindings: [read("x", x), vector("scale", weight), write(out)],
    declarations: partialText,
    rows: out.rows,
    grid: (rows) => [perRow, rows, 1],
    body: `
  let first = (group.y * ${perRow}u + group.x) * ${size}u;
  var sum = 0.0;
  for (var i = lane; i < ${size}u; i += ${LANES}u) { sum += x[first + i] * x[first + i]; }
  partial[lane] = sum;${sumText(LANES)}
  let factor = 1.0 / sqrt(partial[0] / ${float(size)} + ${float(eps)});
  for (var i = lane; i < ${size}u; i += ${LANES}u) { result[first + i] = x[first + i] * factor * scale[i]; }`,
  });
}

export function layerNormKernel(node: NodeOf<"layer_norm">): Kernel {
  const { x, weight, bias, out, eps } = node;
  const size = weight.shape[0]!;
  const perRow = x.cols / size;
  return makeKernel({
    name: `layer_norm [${size}]`,
    bindings: [
      read("x", x),
      vector("scale", weight),
      write(out),
      ...(bias ? [vector("bias", bias)] : []),
    ],
    declarations: partialText,
    rows: out.rows,
    grid: (rows) => [perRow, rows, 1],
    body: `
  let first = ${perRow === 1 ? "group.y" : `(group.y * ${perRow}u + group.x)`} * ${size}u;
  var sum = 0.0;
  for (var i = lane; i < ${size}u; i += ${LANES}u) { sum += x[first + i]; }
  partial[lane] = sum;${sumText(LANES)}
  let mean = partial[0] / ${float(size)};
  workgroupBarrier();
  var squares = 0.0;
  for (var i = lane; i < ${size}u; i += ${LANES}u) { squares += (x[first + i] - mean) * (x[first + i] - mean); }
  partial[lane] = squares;${sumText(LANES)}
  let factor = 1.0 / sqrt(partial[0] / ${float(size)} + ${float(eps)});
  for (var i = lane; i < ${size}u; i += ${LANES}u) {
    result[first + i] = (x[first + i] - mean) * factor * scale[i]${bias ? " + bias[i]" : ""};
  }`,
  });
}

export function softmaxKernel({ x, out }: NodeOf<"softmax">): Kernel {
  const size = x.cols;
  return makeKernel({
    name: `softmax [${size}]`,
    bindings: [read("x", x), write(out)],
    declarations: partialText,
    rows: out.rows,
    grid: (rows) => [1, rows, 1],
    body: `
  let first = group.y * ${size}u;
  var top = x[first];
  for (var i = lane; i < ${size}u; i += ${LANES}u) { top = max(top, x[first + i]); }
  partial[lane] = top;${reduceText(LANES, (a, b) => `max(${a}, ${b})`)}
  top = partial[0];
  workgroupBarrier();
  var sum = 0.0;
  for (var i = lane; i < ${size}u; i += ${LANES}u) { sum += exp(x[first + i] - top); }
  partial[lane] = sum;${sumText(LANES)}
  let inverse = 1.0 / partial[0];
  for (var i = lane; i < ${size}u; i += ${LANES}u) { result[first + i] = exp(x[first + i] - top) * inverse; }`,
  });
}

const partialText = `var<workgroup> partial: array<f32, ${LANES}>;`;

function read(name: string, value: Value): Binding {
  return { name, type: "f32", source: { kind: "value", value } };
}

function write(value: Value): Binding {
  return { name: "result", type: "f32", source: { kind: "value", value }, writes: true };
}

function vector(name: string, weight: Weight): Binding {
  return { name, type: "f32", source: { kind: "weight", weight, part: 0 } };
}
