// Every op of the graph in plain TypeScript, slowly and obviously. This is the meaning of the graph: other backends are
// right when they compute what this computes.
//
// Sums are exact as far as double precision goes; every other intermediate is rounded to float32 where ggml has a float
// (f32 below), because quantizing an activation can turn a difference of 1e-7 into one of 1 %. Weights of any type are
// dequantized row by row into a scratch row and multiplied as floats; activations that meet quantized weights are
// rounded to the type that integer kernels would give them, so that these can be held against this file.

import { ModelError } from "../base/errors.ts";
import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { dtypeByName } from "../dtypes/table.ts";
import { attendedFrom, attendedTo } from "./attended.ts";
import { type Batch, KV_BLOCK_TOKENS, tableOf } from "./batch.ts";
import type { Activation, Graph, GraphNode, NodeOf, OpKind, Rope, Value, Weight } from "./graph.ts";
import { type StoredRecurrent, shortConv } from "./reference-recurrent.ts";
import { routeRow, routeScratchSize, softmaxInPlace } from "./route.ts";

const f32 = Math.fround;

/** A weight in memory: its bytes, and the same memory as floats where the type is float32. */
export interface LoadedWeight {
  readonly dtype: DType;
  /** What activations are rounded to beside it; undefined: they stay as they are. */
  readonly activation: DType | undefined;
  readonly bytes: Uint8Array;
  readonly floats: Float32Array | undefined;
}

/** What activations are rounded to beside weights of this type; undefined: they stay as they are. */
export function activationTypeOf(dtype: DType): DType | undefined {
  const activation = dtypeByName(dtype.activation);
  if (activation?.asFloat32) return undefined; // floats as they are
  if (activation?.quantize) return activation;
  throw new ModelError(
    `dtype ${dtype.name}: activations should be "${dtype.activation}", which cannot be written`,
  );
}

/** Most columns of a value that meets weights: what a row of ReferenceMemory.rounded must hold. */
export function widestActivations({ nodes }: Graph): number {
  const multiplied = nodes.map((node) =>
    node.op === "matmul" || node.op === "matmul_id" ? node.x.cols : 0,
  );
  return Math.max(0, ...multiplied);
}

/** The KV cache, in blocks of 32 tokens. */
export interface KvStore {
  readonly dtype: DType;
  /** By index in Graph.states; undefined: that one is no KV cache. */
  readonly states: readonly (StoredKv | undefined)[];
}

/** Keys and values of one layer, [block][32][cols] each, encoded as KvStore.dtype. */
export interface StoredKv {
  /** Which block table is its own (KvState.group). */
  readonly group: number;
  readonly kCols: number;
  readonly vCols: number;
  readonly keys: Uint8Array;
  readonly values: Uint8Array;
  /** Bytes from a row to the next, where they are more than the row's own. */
  readonly rowBytes?: number;
  /** Bytes from a block to the next: those of 32 rows, or more where other layers lie in between. */
  readonly keyStride: number;
  readonly valueStride: number;
}

/** What the ops work on. Scratch memory is made once, large enough for the largest row and context. */
export interface ReferenceMemory {
  value(value: Value): Float32Array;
  weight(weight: Weight): LoadedWeight;
  readonly kv: KvStore;
  /** By index in Graph.states; undefined: that one is no recurrent state. */
  readonly recurrent: readonly (StoredRecurrent | undefined)[];
  /** [longest row of any weight] */
  readonly row: Float32Array;
  /** [most tokens, widestActivations()]: activations after rounding. */
  readonly rounded: Float32Array;
  /** One row of activations in its rounded type. */
  readonly packed: Uint8Array;
  /** [longest context, widest kCols or vCols]: keys and values as floats. */
  readonly keys: Float32Array;
  readonly values: Float32Array;
  /** [longest context] */
  readonly scores: Float32Array;
}

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
    for (let t = 0; t < batch.tokenCount; t++) {
      readRow(table, batch.tokens[t]!, cols, out, t * cols);
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
    const size = node.x.cols;
    const total = rowCount(node.x, batch) * size;
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
    const x = roundActivations(memory.value(node.x), rows, k, weight.activation, memory); // [T, K]
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

  route(node, batch, memory) {
    const logits = memory.value(node.logits); // [T, experts]
    const out = memory.value(node.out); // [T, 2 * used]
    const bias = node.bias ? vector(memory, node.bias) : undefined;
    const [experts, cols] = [node.logits.cols, node.out.cols];
    const scratch = new Float32Array(routeScratchSize(experts));
    for (let t = 0; t < rowCount(node.out, batch); t++) {
      routeRow(node.routing, experts, logits, t * experts, bias, out, t * cols, scratch);
    }
  },

  matmul_id(node, batch, memory) {
    const out = memory.value(node.out); // [T, slots * N]
    const routes = memory.value(node.routes); // [T, 2 * slots]
    const weight = memory.weight(node.weight); // [experts, N, K]
    const [, n, k] = node.weight.shape as [number, number, number];
    const slots = node.routes.cols / 2;
    const perToken = node.x.cols / k; // rows of x that a token has: 1, or one for each slot
    const rows = rowCount(node.out, batch);
    const x = roundActivations(memory.value(node.x), rows * perToken, k, weight.activation, memory);
    const source = weight.floats ?? memory.row;
    for (let pair = 0; pair < rows * slots; pair++) {
      const [t, slot] = [Math.floor(pair / slots), pair % slots];
      const first = routes[t * 2 * slots + slot]! * n; // row of the expert's matrix
      const xAt = (perToken === 1 ? t : pair) * k;
      for (let o = 0; o < n; o++) {
        const at = weight.floats ? (first + o) * k : 0;
        if (!weight.floats) readRow(weight, first + o, k, memory.row, 0);
        out[pair * n + o] = dot(x, xAt, source, at, k);
      }
    }
    if (!node.bias) return;
    const bias = vector(memory, node.bias); // [experts * N]
    for (let pair = 0; pair < rows * slots; pair++) {
      const [t, slot] = [Math.floor(pair / slots), pair % slots];
      const first = routes[t * 2 * slots + slot]! * n;
      for (let o = 0; o < n; o++) out[pair * n + o]! += bias[first + o]!;
    }
  },

  combine(node, batch, memory) {
    const x = memory.value(node.x); // [T, slots * N]
    const routes = memory.value(node.routes); // [T, 2 * slots]
    const out = memory.value(node.out); // [T, N]
    const [n, slots] = [node.out.cols, node.routes.cols / 2];
    for (let t = 0; t < rowCount(node.out, batch); t++) {
      for (let i = 0; i < n; i++) {
        let sum = 0;
        for (let slot = 0; slot < slots; slot++) {
          const weight = routes[(2 * t + 1) * slots + slot]!;
          sum = f32(sum + f32(x[(t * slots + slot) * n + i]! * weight));
        }
        out[t * n + i] = sum;
      }
    }
  },

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

  kv_write(node, batch, memory) {
    const { dtype } = memory.kv;
    const stored = memory.kv.states[node.state]!;
    const { kCols, vCols, keys, values, keyStride, valueStride } = stored;
    const { rowBytes: keyBytes = bytesFor(dtype, kCols) } = stored;
    const { rowBytes: valueBytes = bytesFor(dtype, vCols) } = stored;
    const k = memory.value(node.k);
    const v = memory.value(node.v);
    for (let t = 0; t < batch.tokenCount; t++) {
      const position = batch.positions[t]!;
      const table = tableOf(batch.sequences[t]!, stored.group);
      const keyAt = kvByte(table, position, keyStride, keyBytes);
      dtype.quantize!(k, t * kCols, keys, keyAt, kCols / dtype.blockElems);
      const valueAt = kvByte(table, position, valueStride, valueBytes);
      dtype.quantize!(v, t * vCols, values, valueAt, vCols / dtype.blockElems);
    }
  },

  attention(node, batch, memory) {
    const q = memory.value(node.q);
    const out = memory.value(node.out);
    const sinks = node.sinks ? vector(memory, node.sinks) : undefined;
    let length = 0;
    for (let t = 0; t < batch.tokenCount; t++) {
      const startsSequence = t === 0 || batch.sequences[t] !== batch.sequences[t - 1];
      if (startsSequence) {
        length = batch.lengthAfter(t);
        loadContext(node, batch, t, length, memory);
      }
      const from = attendedFrom(node, batch.positions[t]!);
      const to = attendedTo(node, batch.positions[t]!, length);
      for (let head = 0; head < node.heads; head++) {
        attendHead(node, head, q, out, t, from, to, sinks, memory);
      }
    }
  },

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

  gate(node, batch, memory) {
    const gate = memory.value(node.gate);
    const up = memory.value(node.up);
    const out = memory.value(node.out);
    const activation = activations[node.activation];
    const total = rowCount(node.out, batch) * node.out.cols;
    const repeats = node.out.cols / node.gate.cols; // of a gate for the whole row
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
    for (let i = 0; i < total; i++) out[i] = a[i]! * b[i]!;
  },

  scale(node, batch, memory) {
    mapElements(node.x, node.out, batch, memory, (x) => x * node.factor);
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
};

export const activations: { readonly [A in Activation]: (x: number) => number } = {
  silu: (x) => f32(x / f32(1 + f32(Math.exp(-x)))),
  gelu: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * x * (1 + 0.044715 * x * x))),
  relu: (x) => Math.max(x, 0),
  sigmoid: (x) => f32(1 / f32(1 + f32(Math.exp(-x)))),
};

function rowCount(value: Value, batch: Batch): number {
  return batch.count(value.rows);
}

function readRow(
  weight: LoadedWeight,
  row: number,
  cols: number,
  target: Float32Array,
  at: number,
): void {
  const { dtype } = weight;
  const blocks = cols / dtype.blockElems;
  dtype.dequantize(weight.bytes, row * blocks * dtype.blockBytes, target, at, blocks);
}

/** A vector weight as floats, in the scratch row unless it is float32 already: use it before the next one is read. */
function vector(memory: ReferenceMemory, weight: Weight): Float32Array {
  const loaded = memory.weight(weight);
  if (loaded.floats) return loaded.floats;
  readRow(loaded, 0, weight.shape[0]!, memory.row, 0);
  return memory.row;
}

/** x as it is, or each row quantized to `dtype` and back, in scratch memory: [rows, cols]. */
function roundActivations(
  x: Float32Array,
  rows: number,
  cols: number,
  dtype: DType | undefined,
  memory: ReferenceMemory,
): Float32Array {
  if (!dtype) return x;
  const { packed, rounded } = memory;
  const blocks = cols / dtype.blockElems;
  for (let t = 0; t < rows; t++) {
    dtype.quantize!(x, t * cols, packed, 0, blocks);
    dtype.dequantize(packed, 0, rounded, t * cols, blocks);
  }
  return rounded;
}

/** Sum of a[i] * b[i]; four partial sums, because one alone waits for each addition. */
function dot(a: Float32Array, aAt: number, b: Float32Array, bAt: number, n: number): number {
  let s0 = 0;
  let s1 = 0;
  let s2 = 0;
  let s3 = 0;
  let i = 0;
  for (; i + 4 <= n; i += 4) {
    s0 += a[aAt + i]! * b[bAt + i]!;
    s1 += a[aAt + i + 1]! * b[bAt + i + 1]!;
    s2 += a[aAt + i + 2]! * b[bAt + i + 2]!;
    s3 += a[aAt + i + 3]! * b[bAt + i + 3]!;
  }
  for (; i < n; i++) s0 += a[aAt + i]! * b[bAt + i]!;
  return s0 + s1 + (s2 + s3);
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

/** Where `position` of a sequence with this block table lies: blocks are `stride` bytes apart, rows `rowBytes`. */
function kvByte(table: Int32Array, position: number, stride: number, rowBytes: number): number {
  const block = table[Math.floor(position / KV_BLOCK_TOKENS)]!;
  return block * stride + (position % KV_BLOCK_TOKENS) * rowBytes;
}

/**
 * Reads keys and values that token t, and those after it in its sequence, attend to in this batch, into the scratch context.
 * Blocks that left the window are not looked at: they may be another sequence's by now.
 */
function loadContext(
  node: NodeOf<"attention">,
  batch: Batch,
  t: number,
  length: number,
  memory: ReferenceMemory,
): void {
  const { dtype } = memory.kv;
  const stored = memory.kv.states[node.state]!;
  const { kCols, vCols, keys, values, keyStride, valueStride } = stored;
  const { rowBytes: keyBytes = bytesFor(dtype, kCols) } = stored;
  const { rowBytes: valueBytes = bytesFor(dtype, vCols) } = stored;
  const table = tableOf(batch.sequences[t]!, stored.group);
  for (let position = attendedFrom(node, batch.positions[t]!); position < length; position++) {
    const keyAt = kvByte(table, position, keyStride, keyBytes);
    dtype.dequantize(keys, keyAt, memory.keys, position * kCols, kCols / dtype.blockElems);
    const valueAt = kvByte(table, position, valueStride, valueBytes);
    dtype.dequantize(values, valueAt, memory.values, position * vCols, vCols / dtype.blockElems);
  }
}

/** One head of one token over positions `from` to `to` of the loaded context. */
function attendHead(
  node: NodeOf<"attention">,
  head: number,
  q: Float32Array,
  out: Float32Array,
  t: number,
  from: number,
  to: number,
  sinks: Float32Array | undefined,
  memory: ReferenceMemory,
): void {
  const { headDim, vHeadDim, kvHeads, softcap } = node;
  const { keys, values, scores } = memory;
  const queryAt = t * node.q.cols + head * headDim;
  const outAt = t * node.out.cols + head * vHeadDim;
  const kvHead = Math.floor(head / (node.heads / kvHeads));
  for (let p = from; p < to; p++) {
    const keyAt = (p * kvHeads + kvHead) * headDim;
    const score = f32(f32(dot(q, queryAt, keys, keyAt, headDim)) * f32(node.scale));
    scores[p] = softcap === undefined ? score : softcap * Math.tanh(score / softcap);
  }
  softmaxInPlace(scores, from, to - from, sinks?.[head]);
  for (let i = 0; i < vHeadDim; i++) {
    let sum = 0;
    for (let p = from; p < to; p++) {
      sum += scores[p]! * values[(p * kvHeads + kvHead) * vHeadDim + i]!;
    }
    out[outAt + i] = sum;
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
