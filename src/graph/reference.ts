// The reference: every op of the graph in plain TypeScript, slow and obvious. It defines the meaning of the graph: other
// backends are right if they compute the same.
//
// Sums are in double precision; every other intermediate is rounded to float32 where ggml has a float (f32 below), because
// quantizing an activation can turn a difference of 1e-7 into one of 1 %. Weights of any type are dequantized row by row
// into a scratch row and multiplied as floats. Activations are first rounded to the type that integer kernels use beside
// the weight (DType.activation), so that these kernels can be tested against this file.
//
// Ops that need more than a screen have files of their own (reference-attention.ts, reference-experts.ts,
// reference-index.ts, reference-recurrent.ts); their shared memory is in reference-memory.ts.

import type { Batch } from "./batch.ts";
import type { Activation, GraphNode, NodeOf, OpKind, OpTable, Rope, Value } from "./graph.ts";
import { attend, writeKv } from "./reference-attention.ts";
import { combine, matmulId, route } from "./reference-experts.ts";
import { indexScores, sparseAttend, topK } from "./reference-index.ts";
import {
  dot,
  type ReferenceMemory,
  readRow,
  roundActivations,
  rowCount,
  vector,
} from "./reference-memory.ts";
import { shortConv } from "./reference-recurrent.ts";
import { deltaNet, ssmScan, wkv } from "./reference-scan.ts";
import { softmaxInPlace } from "./route.ts";

const f32 = Math.fround;

type ReferenceOp<K extends OpKind> = (
  node: NodeOf<K>,
  batch: Batch,
  memory: ReferenceMemory,
) => void;

export function runReferenceOp(node: GraphNode, batch: Batch, memory: ReferenceMemory): void {
  const op = referenceOps[node.op] as ReferenceOp<OpKind>;
  op(node as NodeOf<OpKind>, batch, memory);
}

export const referenceOps: { readonly [K in OpKind]: ReferenceOp<K> } = {
  embed(node, batch, memory) {
    const out = memory.value(node.out);
    const table = memory.weight(node.table);
    const cols = node.out.cols;
    const rows = node.by === "token" ? batch.tokens : batch.positions;
    for (let t = 0; t < batch.tokenCount; t++) {
      readRow(table, substituted(rows[t]!, node.substitutes), cols, out, t * cols);
    }
  },

  rms_norm(node, batch, memory) {
    const x = memory.value(node.x);
    const out = memory.value(node.out);
    const size = node.weight.shape[0]!;
    const weight = vector(memory, node.weight);
    const total = rowCount(node.x, batch) * node.x.cols;
    for (let at = 0; at < total; at += size) {
      let squares = 0;
      for (let i = 0; i < size; i++) squares += x[at + i]! * x[at + i]!;
      const factor = f32(1 / f32(Math.sqrt(f32(f32(squares / size) + f32(node.eps)))));
      for (let i = 0; i < size; i++) out[at + i] = f32(x[at + i]! * factor) * weight[i]!;
    }
  },

  layer_norm(node, batch, memory) {
    const x = memory.value(node.x);
    const out = memory.value(node.out);
    const size = node.weight.shape[0]!;
    const total = rowCount(node.x, batch) * node.x.cols;
    for (let at = 0; at < total; at += size) {
      let sum = 0;
      for (let i = 0; i < size; i++) sum += x[at + i]!;
      const mean = sum / size;
      let squares = 0;
      for (let i = 0; i < size; i++) squares += (x[at + i]! - mean) ** 2;
      const factor = 1 / Math.sqrt(squares / size + node.eps);
      for (let i = 0; i < size; i++) out[at + i] = (x[at + i]! - mean) * factor;
    }
    const weight = vector(memory, node.weight);
    for (let i = 0; i < total; i++) out[i]! *= weight[i % size]!;
    if (!node.bias) return;
    const bias = vector(memory, node.bias);
    for (let i = 0; i < total; i++) out[i]! += bias[i % size]!;
  },

  matmul(node, batch, memory) {
    const out = memory.value(node.out); // [T, N]
    const weight = memory.weight(node.weight); // [N, K]
    const [n, k, rows] = [node.out.cols, node.x.cols, rowCount(node.out, batch)];
    const x = roundActivations(node, rows, k, memory); // [T, K]
    const source = weight.floats ?? memory.row;
    for (let o = 0; o < n; o++) {
      const at = weight.floats ? o * k : 0;
      if (!weight.floats) readRow(weight, o, k, memory.row, 0);
      for (let t = 0; t < rows; t++) out[t * n + o] = dot(x, t * k, source, at, k);
    }
    if (!node.bias) return;
    const bias = vector(memory, node.bias);
    for (let t = 0; t < rows; t++) {
      for (let o = 0; o < n; o++) out[t * n + o]! += bias[o]!;
    }
  },

  route,
  matmul_id: matmulId,
  combine,

  rope(node, batch, memory) {
    const x = memory.value(node.x);
    const out = memory.value(node.out);
    const factors = node.factors ? vector(memory, node.factors) : undefined;
    const cols = node.x.cols;
    for (let t = 0; t < batch.tokenCount; t++) {
      for (let head = t * cols; head < (t + 1) * cols; head += node.headDim) {
        rotateHead(x, out, head, node.rope, batch.positions[t]!, factors);
        for (let i = node.rope.dims; i < node.headDim; i++) out[head + i] = x[head + i]!;
      }
    }
  },

  kv_write: writeKv,
  attention: attend,
  index_scores: indexScores,
  top_k: topK,
  sparse_attention: sparseAttend,

  short_conv(node, batch, memory) {
    const { x, out, weight, bias, state } = node;
    const taps = weight.shape[1]!;
    const loaded = memory.weight(weight);
    const biases = bias && Float32Array.from(vector(memory, bias));
    shortConv(
      {
        ...{ x: memory.value(x), out: memory.value(out), cols: x.cols, taps },
        weightOf: (column) => {
          readRow(loaded, column, taps, memory.row, 0);
          return memory.row;
        },
        biasOf: (column) => biases?.[column] ?? 0,
        state: memory.recurrent[state]!,
      },
      batch,
    );
  },

  ssm_scan: ssmScan,
  delta_net: deltaNet,
  wkv,

  slice(node, batch, memory) {
    const x = memory.value(node.x);
    const out = memory.value(node.out);
    const rows = rowCount(node.x, batch) * node.groups;
    const [size, count] = [node.x.cols / node.groups, node.out.cols / node.groups];
    for (let row = 0; row < rows; row++) {
      const from = row * size + node.from;
      out.set(x.subarray(from, from + count), row * count);
    }
  },

  concat(node, batch, memory) {
    const [a, b] = [memory.value(node.a), memory.value(node.b)];
    const out = memory.value(node.out);
    const rows = rowCount(node.out, batch) * node.groups;
    const [first, second] = [node.a.cols / node.groups, node.b.cols / node.groups];
    for (let row = 0; row < rows; row++) {
      const at = row * (first + second);
      out.set(a.subarray(row * first, (row + 1) * first), at);
      out.set(b.subarray(row * second, (row + 1) * second), at + first);
    }
  },

  gate(node, batch, memory) {
    const gate = memory.value(node.gate);
    const up = memory.value(node.up);
    const out = memory.value(node.out);
    const total = rowCount(node.out, batch) * node.out.cols;
    if (node.activation === "swiglu_oai") {
      for (let i = 0; i < total; i++) out[i] = swigluOai(gate[i]!, up[i]!);
      return;
    }
    const activation = activations[node.activation];
    const repeats = node.out.cols / node.gate.cols; // above 1: one gate for the whole row
    for (let i = 0; i < total; i++) out[i] = activation(gate[Math.floor(i / repeats)]!) * up[i]!;
  },

  activate(node, batch, memory) {
    const activation = activations[node.activation];
    mapElements(node.x, node.out, batch, memory, activation);
  },

  add(node, batch, memory) {
    const a = memory.value(node.a);
    const b = memory.value(node.b);
    const out = memory.value(node.out);
    const total = rowCount(node.out, batch) * node.out.cols;
    for (let i = 0; i < total; i++) out[i] = a[i]! + b[i]!;
  },

  mul(node, batch, memory) {
    const a = memory.value(node.a);
    const b = memory.value(node.b);
    const out = memory.value(node.out);
    const total = rowCount(node.out, batch) * node.out.cols;
    const repeats = node.out.cols / node.b.cols; // above 1: one factor for the whole row
    for (let i = 0; i < total; i++) out[i] = a[i]! * b[Math.floor(i / repeats)]!;
  },

  add_weight(node, batch, memory) {
    const x = memory.value(node.x);
    const out = memory.value(node.out);
    const { cols } = node.out;
    const weight = vector(memory, node.weight);
    const total = rowCount(node.out, batch) * cols;
    for (let i = 0; i < total; i++) out[i] = x[i]! + weight[i % cols]!;
  },

  scale(node, batch, memory) {
    mapElements(node.x, node.out, batch, memory, (x) => x * node.factor);
  },

  mul_weight(node, batch, memory) {
    const x = memory.value(node.x);
    const out = memory.value(node.out);
    const weight = vector(memory, node.weight);
    const size = node.weight.shape[0]!;
    const total = rowCount(node.out, batch) * node.out.cols;
    for (let i = 0; i < total; i++) out[i] = x[i]! * weight[i % size]!;
  },

  clamp(node, batch, memory) {
    const limit = f32(node.limit);
    mapElements(node.x, node.out, batch, memory, (x) => Math.max(-limit, Math.min(limit, x)));
  },

  xielu(node, batch, memory) {
    mapElements(node.x, node.out, batch, memory, xieluOf(node));
  },

  temperature(node, batch, memory) {
    const x = memory.value(node.x);
    const out = memory.value(node.out);
    const { cols } = node.out;
    for (let t = 0; t < batch.tokenCount; t++) {
      const factor = temperatureAt(node, batch.positions[t]!);
      for (let i = t * cols; i < (t + 1) * cols; i++) out[i] = x[i]! * factor;
    }
  },

  softcap(node, batch, memory) {
    mapElements(node.x, node.out, batch, memory, (x) => node.cap * Math.tanh(x / node.cap));
  },

  softmax(node, batch, memory) {
    const x = memory.value(node.x);
    const out = memory.value(node.out);
    const [rows, cols] = [rowCount(node.x, batch), node.x.cols];
    for (let at = 0; at < rows * cols; at += cols) {
      for (let i = 0; i < cols; i++) out[at + i] = x[at + i]!;
      softmaxInPlace(out, at, cols);
    }
  },

  select(node, batch, memory) {
    const x = memory.value(node.x);
    const out = memory.value(node.out);
    const cols = node.x.cols;
    for (let o = 0; o < batch.outputCount; o++) {
      const from = batch.outputRows[o]! * cols;
      out.set(x.subarray(from, from + cols), o * cols);
    }
  },

  gather(node, batch, memory) {
    const x = memory.value(node.x);
    const out = memory.value(node.out);
    const { cols } = node.x;
    const { rows } = batch.adapterList(node.out.rows)!;
    for (let i = 0; i < rowCount(node.out, batch); i++) {
      out.set(x.subarray(rows[i]! * cols, (rows[i]! + 1) * cols), i * cols);
    }
  },

  adapt(node, batch, memory) {
    const [base, x, out] = [node.base, node.x, node.out].map((value) => memory.value(value));
    const { cols } = node.base;
    const { places, scales } = batch.adapterList(node.x.rows)!;
    for (let row = 0; row < rowCount(node.out, batch); row++) {
      const [at, place] = [row * cols, places[row]!];
      if (place < 0) out!.set(base!.subarray(at, at + cols), at);
      const factor = f32(node.factor * scales[row]!);
      for (let i = 0; i < cols && place >= 0; i++) {
        out![at + i] = base![at + i]! + f32(x![place * cols + i]! * factor);
      }
    }
  },
};

export const activations: { readonly [A in Activation]: (x: number) => number } = {
  silu: (x) => f32(x / f32(1 + f32(Math.exp(-x)))),
  gelu: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * x * (1 + 0.044715 * x * x))),
  relu: (x) => Math.max(x, 0),
  relu_squared: (x) => Math.max(x, 0) ** 2,
  sigmoid: (x) => f32(1 / f32(1 + f32(Math.exp(-x)))),
  softplus: (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
  exp: Math.exp,
  step: (x) => (x > 0 ? 1 : 0),
};

/** The row of a token: that of its substitute, where it has one. */
export function substituted(token: number, substitutes: readonly number[] | undefined): number {
  if (!substitutes) return token;
  for (let i = 0; i < substitutes.length; i += 2) {
    if (substitutes[i] === token) return substitutes[i + 1]!;
  }
  return token;
}

/** The same formula as the CPU's instruction. */
export function xieluOf({
  alphaN,
  alphaP,
  beta,
  eps,
}: Omit<OpTable["xielu"], "x">): (x: number) => number {
  return (x) =>
    x > 0 ? alphaP * x * x + beta * x : (Math.expm1(Math.min(x, eps)) - x) * alphaN + beta * x;
}

/** The factor at a position. */
export function temperatureAt(
  { scale, span, offset }: Omit<OpTable["temperature"], "x">,
  position: number,
): number {
  return f32(1 + scale * Math.log(1 + Math.floor((position + offset) / span)));
}

/** gpt-oss: both operands are clamped at 7. */
function swigluOai(gate: number, up: number): number {
  const g = Math.min(gate, 7);
  const inner = f32(g / f32(1 + f32(Math.exp(f32(-f32(1.702) * g)))));
  return inner * f32(Math.max(-7, Math.min(up, 7)) + 1);
}

function rotateHead(
  x: Float32Array,
  out: Float32Array,
  head: number,
  rope: Rope,
  position: number,
  factors: Float32Array | undefined,
): void {
  const pairs = rope.dims / 2;
  const [stride, distance] = rope.layout === "interleaved" ? [2, 1] : [1, pairs];
  for (let pair = 0; pair < pairs; pair++) {
    const angle = f32(f32(position * rope.frequencies[pair]!) / (factors ? factors[pair]! : 1));
    const cos = f32(f32(Math.cos(angle)) * rope.magnitude);
    const sin = f32(f32(Math.sin(angle)) * rope.magnitude);
    const a = x[head + pair * stride]!;
    const b = x[head + pair * stride + distance]!;
    out[head + pair * stride] = f32(a * cos) - f32(b * sin);
    out[head + pair * stride + distance] = f32(a * sin) + f32(b * cos);
  }
}

function mapElements(
  x: Value,
  out: Value,
  batch: Batch,
  memory: ReferenceMemory,
  f: (x: number) => number,
): void {
  const source = memory.value(x);
  const target = memory.value(out);
  const total = rowCount(out, batch) * out.cols;
  for (let i = 0; i < total; i++) target[i] = f(source[i]!);
}
