// The graph: what a model computes in one step, as data. models/ build it (builder.ts), plan.ts orders its buffers,
// backends run it, limits read its costs (cost.ts). It knows no backend and no model.
//
// Every value is a float32 matrix [rows, cols]. How many rows a step has is known only when it runs, so the first
// dimension is symbolic: "tokens" (one row per token of the step) or "outputs" (one row per token whose logits are
// wanted). One plan therefore serves prompts and single tokens alike, and nothing is rebuilt while decoding.

import type { DType } from "../dtypes/dtype.ts";

export type Rows = "tokens" | "outputs";

/** An intermediate result: float32 [rows, cols]. */
export interface Value {
  readonly id: number;
  /** "blk.3.attn_norm": the name under which backends can be compared. */
  readonly name: string;
  readonly rows: Rows;
  readonly cols: number;
}

/** A tensor of the model file: [outputs, inputs] for a matrix, [n] for a vector. */
export interface Weight {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: DType;
}

/**
 * How the pairs of a rotary embedding lie in a head of n values: "interleaved" rotates (0,1), (2,3), ...;
 * "half" rotates (0, n/2), (1, n/2+1), ...
 */
export type RopeLayout = "interleaved" | "half";

export interface Rope {
  readonly layout: RopeLayout;
  /** Values per head that are rotated; the rest pass through. */
  readonly dims: number;
  /** Radians per position for each pair, scaling included: [dims / 2]. */
  readonly frequencies: Float32Array;
  /** Factor on the rotated values (YaRN's attention factor; 1 otherwise). */
  readonly magnitude: number;
}

/** silu(x) = x / (1 + e^-x); gelu is ggml's, by tanh. */
export type Activation = "silu" | "gelu" | "relu";

/** Attributes and operands of each op. The comments give the mathematics; T = rows. */
export interface OpTable {
  /** out[t] = table[token[t]]. */
  embed: { table: Weight };
  /** out = x / sqrt(mean(x^2) + eps) * weight, over each group of weight.length values (a row, or a head). */
  rms_norm: { x: Value; weight: Weight; eps: number };
  /** out = (x - mean) / sqrt(var + eps) * weight + bias, over a row. */
  layer_norm: { x: Value; weight: Weight; bias: Weight | undefined; eps: number };
  /**
   * out[t][n] = sum_k x[t][k] * weight[n][k] + bias[n], where x is first rounded to the type that activations have
   * beside this weight type (DType.activation), as ggml does: integer kernels and the reference then agree.
   */
  matmul: { x: Value; weight: Weight; bias: Weight | undefined };
  /** Rotates each head of x by its token's position; `factors` (from the file) divide the frequencies. */
  rope: { x: Value; headDim: number; rope: Rope; factors: Weight | undefined };
  /** Stores k and v of each token at its place in the paged cache. No output. */
  kv_write: { k: Value; v: Value; layer: number };
  /** Causal attention of each token over its sequence's cache: softmax(q k^T * scale) v, heads sharing KV heads. */
  attention: {
    q: Value;
    layer: number;
    heads: number;
    kvHeads: number;
    headDim: number;
    scale: number;
  };
  /** out = activation(gate) * up. */
  gate: { gate: Value; up: Value; activation: Activation };
  /** out = activation(x). */
  activate: { x: Value; activation: Activation };
  /** out = a + b. */
  add: { a: Value; b: Value };
  /** out = a * b, elementwise. */
  mul: { a: Value; b: Value };
  /** out = x * factor. */
  scale: { x: Value; factor: number };
  /** out = cap * tanh(x / cap). */
  softcap: { x: Value; cap: number };
  /** out = softmax of each row. */
  softmax: { x: Value };
  /** Keeps the rows whose logits are wanted: "tokens" -> "outputs". */
  select: { x: Value };
}

export type OpKind = keyof OpTable;

/** One op with its operands and its result; kv_write has no result. */
export type NodeOf<K extends OpKind> = OpTable[K] & {
  readonly op: K;
  /** The result's name; for kv_write, what is stored. */
  readonly name: string;
  readonly out: K extends "kv_write" ? undefined : Value;
};

export type GraphNode = { [K in OpKind]: NodeOf<K> }[OpKind];

/** The keys and values that attention layers keep per token. */
export interface KvShape {
  layers: number;
  /** Values per token and layer, for keys and for values each: kvHeads * headDim. */
  cols: number;
}

export interface Graph {
  readonly nodes: readonly GraphNode[];
  /** Every weight that a node reads, once. */
  readonly weights: readonly Weight[];
  readonly kv: KvShape;
  /** The first node of each layer, and after them that of the output: where a graph can be split. */
  readonly layerStarts: readonly number[];
  /** Computed by nobody here: it comes with the step. Only the second part of a split graph (split.ts) has one. */
  readonly input?: Value;
  /** The logits: [outputs, vocab]; of the first part of a split graph, what the second goes on with. */
  readonly output: Value;
}

/** The values a node reads. */
export function inputsOf(node: GraphNode): Value[] {
  const inputs: Value[] = [];
  for (const [key, operand] of Object.entries(node)) {
    if (key !== "out" && isValue(operand)) inputs.push(operand);
  }
  return inputs;
}

/** The weights a node reads. */
export function weightsOf(node: GraphNode): Weight[] {
  return Object.values(node).filter(isWeight);
}

/** What the output matrix reads: the last hidden state, normed, [outputs, embed]. undefined: there is no such matrix. */
export function hiddenOf(graph: Graph): Value | undefined {
  const isMatmul = (node: GraphNode): node is NodeOf<"matmul"> => node.op === "matmul";
  const last = graph.nodes.findLast(isMatmul);
  return last?.x.rows === "outputs" ? last.x : undefined;
}

/** The ops that read each weight. */
export function usesOf(graph: Graph): Map<Weight, Set<OpKind>> {
  const uses = new Map<Weight, Set<OpKind>>();
  for (const node of graph.nodes) {
    for (const weight of weightsOf(node)) {
      uses.set(weight, (uses.get(weight) ?? new Set()).add(node.op));
    }
  }
  return uses;
}

function isValue(operand: unknown): operand is Value {
  return typeof operand === "object" && operand !== null && "cols" in operand && "id" in operand;
}

function isWeight(operand: unknown): operand is Weight {
  return typeof operand === "object" && operand !== null && "dtype" in operand;
}
