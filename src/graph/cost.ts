// Operations and bytes of every op, from shapes and types alone. Limits and every "percent of the limit" start from these.
//
// An operation is one multiply or one add; transcendental functions count 1. Which kind a matmul is follows from the type
// that its activations are rounded to: 8-bit integers for quantized weights, half floats for f16 and bf16, else floats.
// Attention follows the type of the KV cache in the same way. Bytes are the minimum that must move: weights and cache once
// per batch, values once when read and once when written.

import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { type KvDType, kvPair } from "../dtypes/kv-types.ts";
import { dtypeByName } from "../dtypes/table.ts";
import { halfWindow } from "./attended.ts";
import { KV_BLOCK_TOKENS } from "./batch.ts";
import {
  adapterOf,
  type Graph,
  type GraphNode,
  type KvState,
  kvStates,
  type NodeOf,
  type OpKind,
  recurrentStates,
  type Value,
  type Weight,
  weightsOf,
} from "./graph.ts";

/** The size of a batch. */
export interface BatchSize {
  tokens: number;
  outputs: number;
  /** Cached tokens that a token attends to, itself included, averaged over the batch's tokens. */
  context: number;
  /** Type of the KV cache. */
  kv: KvDType;
}

export interface Cost {
  /** Operations on floats. */
  floatOps: number;
  /** Operations on half floats. */
  halfOps: number;
  /** Operations on 8-bit integers. */
  int8Ops: number;
  weightBytes: number;
  kvBytes: number;
  valueBytes: number;
}

const noOps = { floatOps: 0, halfOps: 0, int8Ops: 0 } as const;

type CostRule<K extends OpKind> = (node: NodeOf<K>, batch: BatchSize) => Cost;

const rules: { [K in OpKind]: CostRule<K> } = {
  embed: (n, s) => ({
    ...noOps,
    weightBytes: s.tokens * rowBytes(n.table),
    kvBytes: 0,
    valueBytes: valueBytes(n.out, s),
  }),
  rms_norm: (n, s) => elementwise(4, [n.x], n.out, s, [n.weight]),
  layer_norm: (n, s) => elementwise(7, [n.x], n.out, s, n.bias ? [n.weight, n.bias] : [n.weight]),
  matmul: (n, s) => ({
    ...matmulOps(n, rowsOf(n.out, s) * n.out.cols),
    weightBytes: weightBytes(n.weight) + (n.bias ? weightBytes(n.bias) : 0),
    kvBytes: 0,
    valueBytes: valueBytes(n.x, s) + valueBytes(n.out, s),
  }),
  route: (n, s) => elementwise(6, [n.logits], n.out, s, weightsOf(n)),
  matmul_id: (n, s) => {
    const used = n.routes.cols / 2;
    const rows = rowsOf(n.out, s);
    const results = rows * n.out.cols;
    const [experts, , inputs] = n.weight.shape as [number, number, number];
    const bytes = weightBytes(n.weight) + (n.bias ? weightBytes(n.bias) : 0);
    return {
      ...opsOf(n.weight.dtype, 2 * inputs * results, n.bias ? results : 0),
      weightBytes: (bytes * distinctExperts(experts, used, rows)) / experts,
      kvBytes: 0,
      valueBytes: valueBytes(n.x, s) + valueBytes(n.out, s),
    };
  },
  combine: (n, s) => elementwise((2 * n.x.cols) / n.out.cols, [n.x, n.routes], n.out, s),
  rope: (n, s) => elementwise(3, [n.x], n.out, s, n.factors ? [n.factors] : []),
  kv_write: (n, s) => ({
    ...noOps,
    weightBytes: 0,
    kvBytes: s.tokens * kvRowBytes(n.k.cols, n.v.cols, s.kv),
    valueBytes: valueBytes(n.k, s) + valueBytes(n.v, s),
  }),
  attention: (n, s) => {
    const context = attendedOnAverage(n, s.context);
    const pairs = s.tokens * context * n.heads;
    const { k, v } = kvPair(s.kv);
    return {
      // Matmuls of headDim and vHeadDim per head and cached token (scores, weighted sum), and the softmax.
      ...sumOfOps(
        opsOf(
          k,
          pairs * 2 * n.headDim,
          pairs * ((n.softcap ? 6 : 3) + (n.alibi ? 2 : 0) + (n.bias ? 1 : 0)),
        ),
        opsOf(v, pairs * 2 * n.vHeadDim, 0),
      ),
      weightBytes: weightsOf(n).reduce((sum, weight) => sum + weightBytes(weight), 0),
      kvBytes: context * kvRowBytes(n.kvHeads * n.headDim, n.kvHeads * n.vHeadDim, s.kv),
      valueBytes: valueBytes(n.q, s) + valueBytes(n.out, s),
    };
  },
  index_scores: (n, s) => {
    const { k } = kvPair(s.kv);
    const half = n.q.cols / n.heads / 2;
    const pairs = s.tokens * Math.min(s.context, n.out.cols) * n.heads;
    return {
      ...opsOf(k, pairs * 4 * half, pairs * 3),
      weightBytes: 0,
      kvBytes: Math.min(s.context, n.out.cols) * kvRowBytes(half, half, s.kv),
      valueBytes: [n.q, n.weights, n.out].reduce((sum, value) => sum + valueBytes(value, s), 0),
    };
  },
  top_k: (n, s) => elementwise(2, [n.x], n.out, s),
  sparse_attention: (n, s) => {
    const context = Math.min(s.context, n.chosen.cols);
    const pairs = s.tokens * context * n.heads;
    const { k, v } = kvPair(s.kv);
    return {
      ...sumOfOps(opsOf(k, pairs * 2 * n.headDim, pairs * 3), opsOf(v, pairs * 2 * n.vHeadDim, 0)),
      weightBytes: 0,
      // Tokens choose different positions.
      kvBytes: s.tokens * context * kvRowBytes(n.kvHeads * n.headDim, n.kvHeads * n.vHeadDim, s.kv),
      valueBytes: [n.q, n.chosen, n.out].reduce((sum, value) => sum + valueBytes(value, s), 0),
    };
  },
  short_conv: (n, s) => ({
    ...elementwise(
      2 * n.weight.shape[1]!,
      [n.x],
      n.out,
      s,
      n.bias ? [n.weight, n.bias] : [n.weight],
    ),
    // The state is read and written once.
    kvBytes: 2 * (n.weight.shape[1]! - 1) * n.x.cols * 4,
  }),
  // The update and the result; with a matrix, the decay of every float, too.
  ssm_scan: (n, s) => {
    const ops = n.a.shape.length === 2 ? 7 : 5;
    return scanCost(ops, n.x.cols * n.states, [n.x, n.dt, n.b, n.c], n.out, s, [n.a, n.skip]);
  },
  delta_net: (n, s) => {
    const floats = (n.k.cols / n.keyHeads) * n.v.cols;
    return scanCost(7, floats, [n.q, n.k, n.v, n.dt, n.beta], n.out, s, [n.a]);
  },
  wkv: (n, s) => {
    const floats = (n.v.cols / n.heads) * n.v.cols;
    const inputs = [n.r, n.w, n.k, n.v, ...(n.a && n.b ? [n.a, n.b] : [])];
    return scanCost(n.bonus ? 5 : 9, floats, inputs, n.out, s, n.bonus ? [n.bonus] : []);
  },
  slice: (n, s) => ({
    ...noOps,
    weightBytes: 0,
    kvBytes: 0,
    valueBytes: 2 * valueBytes(n.out, s),
  }),
  concat: (n, s) => ({
    ...noOps,
    weightBytes: 0,
    kvBytes: 0,
    valueBytes: 2 * valueBytes(n.out, s),
  }),
  gate: (n, s) => elementwise(5, [n.gate, n.up], n.out, s),
  activate: (n, s) => elementwise(4, [n.x], n.out, s),
  add: (n, s) => elementwise(1, [n.a, n.b], n.out, s),
  mul: (n, s) => elementwise(1, [n.a, n.b], n.out, s),
  add_weight: (n, s) => elementwise(1, [n.x], n.out, s, [n.weight]),
  scale: (n, s) => elementwise(1, [n.x], n.out, s),
  mul_weight: (n, s) => elementwise(1, [n.x], n.out, s, [n.weight]),
  clamp: (n, s) => elementwise(2, [n.x], n.out, s),
  xielu: (n, s) => elementwise(6, [n.x], n.out, s),
  temperature: (n, s) => elementwise(1, [n.x], n.out, s),
  softcap: (n, s) => elementwise(3, [n.x], n.out, s),
  softmax: (n, s) => elementwise(5, [n.x], n.out, s),
  select: (n, s) => ({
    ...noOps,
    weightBytes: 0,
    kvBytes: 0,
    valueBytes: 2 * valueBytes(n.out, s),
  }),
  gather: () => nothing,
  adapt: () => nothing,
};

const nothing: Cost = { ...noOps, weightBytes: 0, kvBytes: 0, valueBytes: 0 };

/** Adapter rows cost nothing here: limits are those of the model alone, because few requests may use an adapter. */
export function nodeCost(node: GraphNode, batch: BatchSize): Cost {
  if (node.out && adapterOf(node.out.rows)) return nothing;
  return (rules[node.op] as CostRule<OpKind>)(node as NodeOf<OpKind>, batch);
}

export function graphCost(graph: Graph, batch: BatchSize): Cost {
  const total: Cost = { ...noOps, weightBytes: 0, kvBytes: 0, valueBytes: 0 };
  for (const node of graph.nodes) {
    const cost = nodeCost(node, batch);
    total.floatOps += cost.floatOps;
    total.halfOps += cost.halfOps;
    total.int8Ops += cost.int8Ops;
    total.weightBytes += cost.weightBytes;
    total.kvBytes += cost.kvBytes;
    total.valueBytes += cost.valueBytes;
  }
  return total;
}

/**
 * The average number of experts whose weights a batch reads, if each token uses `used` experts and all are
 * equally likely.
 */
export function distinctExperts(experts: number, used: number, tokens: number): number {
  return experts * (1 - (1 - used / experts) ** tokens);
}

/** Bytes of a token's keys and values in all layers. */
export function kvTokenBytes(graph: Graph, kv: KvDType): number {
  return kvStates(graph).reduce((sum, state) => sum + kvStateBytes(state, kv), 0);
}

/** Bytes of a token's keys and values in one layer. */
export function kvStateBytes({ kCols, vCols }: KvState, kv: KvDType): number {
  return kvRowBytes(kCols, vCols, kv);
}

function kvRowBytes(kCols: number, vCols: number, kv: KvDType): number {
  const { k, v } = kvPair(kv);
  return bytesFor(k, kCols) + bytesFor(v, vCols);
}

/** Bytes of a block of the cache, in all layers of a group. */
export function kvBlockBytes(graph: Graph, group: number, kv: KvDType): number {
  const states = kvStates(graph).filter((state) => state.group === group);
  return states.reduce((sum, state) => sum + KV_BLOCK_TOKENS * kvStateBytes(state, kv), 0);
}

/** Floats of a sequence's recurrent state, in all layers. */
export function slotFloats(graph: Graph): number {
  return recurrentStates(graph).reduce((sum, { floats }) => sum + floats, 0);
}

function rowsOf(value: Value, batch: Pick<BatchSize, "tokens" | "outputs">): number {
  return value.rows === "tokens" ? batch.tokens : batch.outputs;
}

export function weightElements(weight: Weight): number {
  return weight.shape.reduce((product, dim) => product * dim, 1);
}

export function weightBytes(weight: Weight): number {
  return bytesFor(weight.dtype, weightElements(weight));
}

function rowBytes(weight: Weight): number {
  return bytesFor(weight.dtype, weight.shape.at(-1)!);
}

function valueBytes(value: Value, batch: BatchSize): number {
  return rowsOf(value, batch) * value.cols * 4;
}

/** An op that goes over `floats` of recurrent state for each token; the state is read and written once per batch. */
function scanCost(
  opsPerFloat: number,
  floats: number,
  inputs: readonly Value[],
  out: Value,
  batch: BatchSize,
  weights: readonly Weight[],
): Cost {
  return {
    ...elementwise((opsPerFloat * floats) / out.cols, inputs, out, batch, weights),
    kvBytes: 2 * floats * 4,
  };
}

type Ops = Pick<Cost, "floatOps" | "halfOps" | "int8Ops">;

/** Operations of dot products with values of a type, and operations on floats beside them. */
function opsOf({ activation }: DType, dotOps: number, floatOps: number): Ops {
  const type = dtypeByName(activation);
  if ((type?.blockElems ?? 1) > 1) return { floatOps, halfOps: 0, int8Ops: dotOps };
  const isHalf = type?.blockBytes === 2;
  return isHalf
    ? { floatOps, halfOps: dotOps, int8Ops: 0 }
    : { floatOps: floatOps + dotOps, halfOps: 0, int8Ops: 0 };
}

function matmulOps({ x, weight, bias }: NodeOf<"matmul">, results: number): Ops {
  return opsOf(weight.dtype, 2 * x.cols * results, bias ? results : 0);
}

/** Tokens that a token attends to. Where attention is not causal, a text is one batch, and `context` is half of it. */
function attendedOnAverage(
  { window = Number.POSITIVE_INFINITY, causal }: NodeOf<"attention">,
  context: number,
): number {
  if (causal) return Math.min(context, window);
  return Math.min(2 * context - 1, 2 * halfWindow(window) + 1);
}

function elementwise(
  opsPerElement: number,
  inputs: readonly Value[],
  out: Value,
  batch: BatchSize,
  weights: readonly Weight[] = [],
): Cost {
  return {
    ...noOps,
    floatOps: opsPerElement * rowsOf(out, batch) * out.cols,
    weightBytes: weights.reduce((sum, weight) => sum + weightBytes(weight), 0),
    kvBytes: 0,
    valueBytes: inputs.reduce(
      (sum, input) => sum + valueBytes(input, batch),
      valueBytes(out, batch),
    ),
  };
}

function sumOfOps(a: Ops, b: Ops): Ops {
  return {
    floatOps: a.floatOps + b.floatOps,
    halfOps: a.halfOps + b.halfOps,
    int8Ops: a.int8Ops + b.int8Ops,
  };
}
