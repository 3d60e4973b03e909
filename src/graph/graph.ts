// The graph: the computation of a model in one batch, as data. models/ builds it (builder.ts), plan.ts gives its values buffers,
// backends run it, limits/ adds up its costs (cost.ts). It knows no backend and no model.
//
// Every value is a float32 matrix [rows, cols]. The number of rows is known only when a batch runs, so the first dimension
// is symbolic: "tokens" (one row per token of the batch), "outputs" (one row per token whose results are wanted) or "logits"
// (as "outputs", or none if only hidden states are wanted). Of each, "tokens@2" are those whose sequence uses adapter 2
// (adapt.ts). One plan serves prefill and decode, and nothing is rebuilt between batches.

import type { DType } from "../dtypes/dtype.ts";

export type BatchRows = "tokens" | "outputs" | "logits";

/** Rows of a kind whose sequence uses an adapter, by its number. */
export type AdapterRows = `${BatchRows}@${number}`;

export type Rows = BatchRows | AdapterRows;

/** An intermediate result: float32 [rows, cols]. */
export interface Value {
  readonly id: number;
  /** "blk.3.attn_norm": the name under which backends can be compared. */
  readonly name: string;
  readonly rows: Rows;
  readonly cols: number;
}

/** A tensor of the model file: [n] for a vector, [outputs, inputs] for a matrix, [experts, outputs, inputs] for experts. */
export interface Weight {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: DType;
  /** Default: the tensor of that name (weight-source.ts). */
  readonly source?: WeightSource;
}

/** Rows of a tensor from `row` on, a vector with each value `times` times, or numbers that the architecture computes. */
export type WeightSource =
  | { readonly tensor: string; readonly row: number }
  | { readonly tensor: string; readonly times: number }
  | { readonly values: Float32Array };

/**
 * The layout of a rotary embedding's pairs in a head of n values: "interleaved" rotates (0,1), (2,3), ...;
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

/**
 * silu(x) = x / (1 + e^-x); gelu is ggml's, by tanh; relu_squared(x) = max(x, 0)^2; sigmoid(x) = 1 / (1 + e^-x);
 * softplus(x) = ln(1 + e^x); step(x) is 1 above zero, else 0 (predict.ts).
 */
export type Activation =
  | "silu"
  | "gelu"
  | "relu"
  | "relu_squared"
  | "sigmoid"
  | "softplus"
  | "exp"
  | "step";

/** Activations of the op gate; "swiglu_oai" also changes the multiplied values: see the op. */
export type GateActivation = Activation | "swiglu_oai";

/**
 * The way to make a router's logits into scores, which choose the experts and weight them: "softmax" and "sigmoid" of all logits;
 * "softmax_chosen": the logits choose, and the softmax of the chosen ones weights; "none": the logits choose, and are the
 * weights; "all": all experts in their order, with weights of 1, for any logits (matrices of heads).
 */
export type Gating = "softmax" | "sigmoid" | "softmax_chosen" | "none" | "all";

/**
 * Equal groups of neighbouring experts. Only the `used` groups with the largest sums of their two best scores for choosing are
 * chosen from; of equal sums, the first (DeepSeek V3).
 */
export interface ExpertGroups {
  readonly count: number;
  readonly used: number;
}

/** The way to choose and weight a token's experts. */
export interface Routing {
  /** Experts that each token uses. */
  readonly used: number;
  readonly gating: Gating;
  /** The weights of a token add up to 1. */
  readonly normalise: boolean;
  /** Factor on the weights. */
  readonly scale: number;
  /** Default: experts are chosen from all. */
  readonly groups?: ExpertGroups;
  /**
   * So many neighbouring experts share a matrix: ids are those of the matrices, and weights the scores that have their numbers
   * (Grove MoE). Default: 1.
   */
  readonly sharing?: number;
}

/** Attributes and operands of each op. The comments give the mathematics; T = rows. */
export interface OpTable {
  /**
   * out[t] = table[token[t]], or table[position[t]]: learned positions. A token of `substitutes` has the row of the one behind
   * it: [token, row, token, row, ...].
   */
  embed: { table: Weight; by: "token" | "position"; substitutes: readonly number[] | undefined };
  /** out = x / sqrt(mean(x^2) + eps) * weight, over each group of weight.length values (a row, or a head). */
  rms_norm: { x: Value; weight: Weight; eps: number };
  /** out = (x - mean) / sqrt(var + eps) * weight + bias, over each group of weight.length values (a row, or a head). */
  layer_norm: { x: Value; weight: Weight; bias: Weight | undefined; eps: number };
  /**
   * out[t][n] = sum_k x[t][k] * weight[n][k] + bias[n], where x is first rounded to the type that activations have
   * beside this weight type (DType.activation), as ggml does: integer kernels and the reference then agree.
   */
  matmul: { x: Value; weight: Weight; bias: Weight | undefined };
  /**
   * The experts of each token: out[t] = [ids of the `used` experts with the largest scores, largest first; their weights].
   * Ids are small integers as floats. `bias` is added to the scores for choosing only. Of equal scores, the first is chosen.
   * `scales`, [experts], are factors on the weights, after normalising.
   */
  route: {
    logits: Value;
    bias: Weight | undefined;
    scales: Weight | undefined;
    routing: Routing;
  };
  /**
   * matmul with the experts of each token: out[t][s] = x[t] * weight[expert(t, s)]^T + bias[expert(t, s)], for slots s of
   * `routes`. x has one row per token for all slots, or one per slot. weight: [experts, outputs, inputs],
   * bias: [experts * outputs].
   */
  matmul_id: { x: Value; routes: Value; weight: Weight; bias: Weight | undefined };
  /** out[t] = sum of x[t][s] * weight(t, s) over slots s of `routes`, in their order. */
  combine: { x: Value; routes: Value };
  /** Rotates each head of x by its token's position; `factors` (from the file) divide the frequencies. */
  rope: { x: Value; headDim: number; rope: Rope; factors: Weight | undefined };
  /** Stores k and v of each token in the paged KV cache: in state `state` of the graph, a KvState. No output. */
  kv_write: { k: Value; v: Value; state: number };
  /**
   * Attention of each token over its sequence's KV cache, where heads may share KV heads: softmax(capped(q k^T * scale)) v
   * over the positions that attended.ts gives.
   */
  attention: {
    /** [tokens, heads * headDim]; the result is [tokens, heads * vHeadDim]. */
    q: Value;
    /** The KvState that holds keys and values. */
    state: number;
    heads: number;
    kvHeads: number;
    /** Values of a head of queries or keys. */
    headDim: number;
    vHeadDim: number;
    scale: number;
    /** KvState.window: positions that a token attends to, its own included; undefined: all. */
    window: number | undefined;
    /** KvState.chunked: the window begins at the last multiple of its length. */
    chunked: boolean;
    /** Scores s become softcap * tanh(s / softcap). */
    softcap: number | undefined;
    /** false: a token attends to those after it, too, which must all be in the same batch. */
    causal: boolean;
    /** [heads]: one more score in each head's softmax, without a value (gpt-oss). */
    sinks: Weight | undefined;
    /** [heads]: slopes of ALiBi; after capping, a score falls by its head's slope times the distance of the positions. */
    alibi: Weight | undefined;
    /** [buckets * heads]: the bias of a score for the distance of its positions, which `buckets` counts in (T5). */
    bias: Weight | undefined;
    /** [2n + 1]: the bucket of each distance of a key from the query, from -n to n; further ones are as -n or n. */
    buckets: Weight | undefined;
  };
  /**
   * The score of each position up to the token's own: out[t][p] = sum over heads h of weights[t][h] * max(0, q[t][h] . k[p]), and
   * 0 for later positions (DeepSeek 3.2). All heads share the keys; state `state`, a KvState, holds their first halves as keys,
   * and their second halves as values.
   */
  index_scores: {
    /** [tokens, heads * headDim]; the result is [tokens, the longest context]. */
    q: Value;
    /** [tokens, heads] */
    weights: Value;
    state: number;
    heads: number;
  };
  /**
   * The positions up to the token's own with the largest x, and -1 after them where there are fewer: [tokens, context] ->
   * [tokens, most]. Of equal ones, those that std::partial_sort would choose, as in llama.cpp: zeros are frequent.
   */
  top_k: { x: Value };
  /** attention, but over the positions that `chosen` lists for each token: `most`, or as many as there are up to its own. */
  sparse_attention: {
    /** [tokens, heads * headDim]; the result is [tokens, heads * vHeadDim]. */
    q: Value;
    /** [tokens, most] */
    chosen: Value;
    state: number;
    heads: number;
    kvHeads: number;
    headDim: number;
    vHeadDim: number;
    scale: number;
  };
  /**
   * Causal convolution of each column over its sequence: out[t][c] = sum_k weight[c][k] * x[t - K + 1 + k][c] + bias[c], for
   * a weight of [cols, K]. Inputs before the batch come from state `state`, a RecurrentState that holds the last K - 1 of
   * them, [K - 1, cols]; before the first token they are 0.
   */
  short_conv: { x: Value; weight: Weight; bias: Weight | undefined; state: number };
  /**
   * Selective scan (Mamba). A sequence keeps a matrix S [headDim, N] for each head: S = e^(dt a) S + dt x b^T, and
   * out = S c + skip x. With a of [heads, N] (Mamba 1), a head is one column of x, and each column of S has its own decay; the
   * state is [heads, N]. With a of [heads] (Mamba 2), the state is [heads, N, headDim].
   */
  ssm_scan: {
    /** [tokens, heads * headDim] */
    x: Value;
    /** [tokens, heads] */
    dt: Value;
    /** [tokens, groups * N] each: neighbouring heads share a group. */
    b: Value;
    c: Value;
    a: Weight;
    /** [heads] */
    skip: Weight;
    /** N. */
    states: number;
    state: number;
  };
  /**
   * Gated delta rule. A sequence keeps a matrix S [keyDim, vDim] for each head: S = diag(e^(a dt)) S, then
   * S = S + k (beta (v - k^T S))^T, and out = q^T S. The state is [heads, keyDim, vDim].
   */
  delta_net: {
    /** [tokens, keyHeads * keyDim] each. */
    q: Value;
    k: Value;
    /** [tokens, heads * vDim] */
    v: Value;
    /** [tokens, heads], or [tokens, heads * keyDim]: a decay for each key channel (KDA). */
    dt: Value;
    /** [tokens, heads] */
    beta: Value;
    /** [heads] */
    a: Weight;
    keyHeads: number;
    /** The key head of head h: h % keyHeads; otherwise neighbouring heads share one. */
    tiled: boolean;
    state: number;
  };
  /**
   * Time mix of RWKV. A sequence keeps a matrix S [n, n] for each head, as [heads, n (of keys), n (of values)].
   * RWKV 6, with a bonus: out = r^T (S + diag(bonus) k v^T), then S = diag(w) S + k v^T.
   * RWKV 7, with a and b: S = diag(w) S + k v^T + b (a^T S), then out = r^T S.
   */
  wkv: {
    /** [tokens, heads * n], as all operands. */
    r: Value;
    w: Value;
    k: Value;
    v: Value;
    a: Value | undefined;
    b: Value | undefined;
    /** [heads * n] */
    bonus: Weight | undefined;
    heads: number;
    state: number;
  };
  /** The same `out.cols / groups` columns, from column `from` on, of each of `groups` equal groups of x's columns. */
  slice: { x: Value; groups: number; from: number };
  /** Each of `groups` equal groups of a's columns, followed by the same group of b's. */
  concat: { a: Value; b: Value; groups: number };
  /**
   * out = activation(gate) * up; a gate of one column is for the whole row. "swiglu_oai" (gpt-oss) clamps both:
   * out = g / (1 + e^(-1.702 g)) * (u + 1), with g = min(gate, 7) and u = up within -7 and 7.
   */
  gate: { gate: Value; up: Value; activation: GateActivation };
  /** out = activation(x). */
  activate: { x: Value; activation: Activation };
  /** out = a + b. */
  add: { a: Value; b: Value };
  /** out = a * b, elementwise; a b of one column is for the whole row. */
  mul: { a: Value; b: Value };
  /** out = x + weight, with one for each column: [cols]. */
  add_weight: { x: Value; weight: Weight };
  /** out = x * factor. */
  scale: { x: Value; factor: number };
  /** out = x * weight, elementwise; a weight shorter than a row repeats along it. */
  mul_weight: { x: Value; weight: Weight };
  /** out = x, but at least -limit and at most limit. */
  clamp: { x: Value; limit: number };
  /** out = x > 0 ? alphaP * x^2 + beta * x : alphaN * (e^min(x, eps) - 1 - x) + beta * x. */
  xielu: { x: Value; alphaN: number; alphaP: number; beta: number; eps: number };
  /** out = x * (1 + scale * ln(1 + floor((position + offset) / span))): queries grow with the length of the text. */
  temperature: { x: Value; scale: number; span: number; offset: number };
  /** out = cap * tanh(x / cap). */
  softcap: { x: Value; cap: number };
  /** out = softmax of each row. */
  softmax: { x: Value };
  /** Keeps the rows of the batch's outputs: "tokens" -> "outputs". */
  select: { x: Value };
  /** Keeps the rows whose sequence uses an adapter: "tokens" -> "tokens@adapter"; outputs likewise. */
  gather: { x: Value };
  /**
   * out = base, and in the rows of x (gather) base + x * factor * scale, where the sequence has a scale for the adapter. A row that
   * does not use it keeps its bits. Out may be where base was.
   */
  adapt: { base: Value; x: Value; factor: number };
}

export type OpKind = keyof OpTable;

/** One op with its operands and its result; kv_write has no result. */
export type NodeOf<K extends OpKind> = OpTable[K] & {
  readonly op: K;
  /** The result's name; for kv_write, the name of the stored value. */
  readonly name: string;
  readonly out: K extends "kv_write" ? undefined : Value;
};

export type GraphNode = { [K in OpKind]: NodeOf<K> }[OpKind];

/** Keys and values, kept for every token of a sequence. */
export interface KvState {
  readonly kind: "kv";
  readonly layer: number;
  /** Values per token: kvHeads * headDim of keys, and of values. */
  readonly kCols: number;
  readonly vCols: number;
  /** Tokens that attention looks back, its own included; older ones may be dropped. Default: all. */
  readonly window?: number;
  /** Attention looks back to the last multiple of `window` only. Default: false. */
  readonly chunked?: boolean;
  /** States of the same window share block tables and pools of blocks; they are numbered from 0. */
  readonly group: number;
}

/** A layer's state of all tokens of a sequence so far, as floats: the last inputs of a convolution, a state-space matrix. */
export interface RecurrentState {
  readonly kind: "recurrent";
  readonly layer: number;
  readonly floats: number;
}

/** The state that a layer keeps between batches. The architecture declares it; ops name it by its index in Graph.states. */
export type LayerState = KvState | RecurrentState;

/** As an architecture declares it: the builder numbers the groups. */
export type DeclaredState = Omit<KvState, "group"> | RecurrentState;

export interface Graph {
  readonly nodes: readonly GraphNode[];
  /** Every weight that a node reads, once. */
  readonly weights: readonly Weight[];
  readonly states: readonly LayerState[];
  /** Index of the first node of each layer, and last that of the output: where a graph can be split. */
  readonly layerStarts: readonly number[];
  /** Rows that come with the batch instead of being computed: hidden states for a layer that predicts further tokens. */
  readonly input?: Value;
  /** The number of adapters that its ops apply (adapt.ts). Default: none. */
  readonly adapters?: number;
  /** In order; between two of them the other part of a split graph computes (split.ts). Default: one, of all nodes. */
  readonly sections?: readonly Section[];
  readonly outputs: Outputs;
}

/** Nodes that a part of a split graph computes without waiting for the other part. */
export interface Section {
  /** Indices of its first node, and of the one behind its last. */
  readonly from: number;
  readonly to: number;
  /** Values of the other part that come before its first node; this section or a later one reads them. */
  readonly takes: readonly Value[];
  /** Its values that the other part reads. */
  readonly gives: readonly Value[];
}

/** The values that can be read after a batch. An encoder has no logits; only models that rank texts have scores. */
export interface Outputs {
  /** The logits of the next token: [logits, vocab]. */
  readonly logits?: Value;
  /** The last hidden state, normed: [outputs, embed]. */
  readonly hidden?: Value;
  /** A classifier head's scores of a hidden state: [logits, labels]. */
  readonly scores?: Value;
}

export type OutputName = keyof Outputs;

/** The values a node reads. */
export function inputsOf(node: GraphNode): Value[] {
  const inputs: Value[] = [];
  for (const [key, operand] of Object.entries(node)) {
    if (key !== "out" && isValue(operand)) inputs.push(operand);
  }
  return inputs;
}

/** The same node with other input values. */
export function withInputs(node: GraphNode, replace: (value: Value) => Value): GraphNode {
  const operands = Object.entries(node).map(([key, operand]) => [
    key,
    key !== "out" && isValue(operand) ? replace(operand) : operand,
  ]);
  return Object.fromEntries(operands) as GraphNode;
}

export function sectionsOf({ nodes, input, sections }: Graph): readonly Section[] {
  return sections ?? [{ from: 0, to: nodes.length, takes: input ? [input] : [], gives: [] }];
}

/** The weights a node reads. */
export function weightsOf(node: GraphNode): Weight[] {
  return Object.values(node).filter(isWeight);
}

const adapterRows = new Map<Rows, { readonly rows: BatchRows; readonly adapter: number }>();

/** The adapter of these rows, and the rows that it leaves others of; undefined: they are not of an adapter. Allocates once for each kind. */
export function adapterOf(
  rows: Rows,
): { readonly rows: BatchRows; readonly adapter: number } | undefined {
  if (rows === "tokens" || rows === "outputs" || rows === "logits") return undefined;
  const known = adapterRows.get(rows);
  if (known) return known;
  const at = rows.indexOf("@");
  const own = { rows: rows.slice(0, at) as BatchRows, adapter: Number(rows.slice(at + 1)) };
  adapterRows.set(rows, own);
  return own;
}

export function layerCount({ layerStarts }: Graph): number {
  return Math.max(0, layerStarts.length - 1);
}

export function kvStates({ states }: Graph): KvState[] {
  return states.filter((state) => state.kind === "kv");
}

/** KV states of the same window. */
export interface KvGroup {
  /** Infinity: attention looks back to the beginning. */
  readonly window: number;
  readonly states: readonly KvState[];
}

/** By number. A part of a split graph may have no states in a group. */
export function kvGroups(graph: Graph): KvGroup[] {
  const states = kvStates(graph);
  const count = Math.max(0, ...states.map(({ group }) => group + 1));
  return Array.from({ length: count }, (_, group) => {
    const own = states.filter((state) => state.group === group);
    return { window: own[0]?.window ?? Infinity, states: own };
  });
}

/** Whether tokens attend to those after them: a text is then computed in one batch, and cannot be continued. */
export function isBidirectional({ nodes }: Graph): boolean {
  return nodes.some((node) => node.op === "attention" && !node.causal);
}

export function recurrentStates({ states }: Graph): RecurrentState[] {
  return states.filter((state) => state.kind === "recurrent");
}

/** The values that can be read after a batch. */
export function outputsOf({ outputs }: Graph): ReadonlySet<Value> {
  return new Set(Object.values(outputs).filter(isValue));
}

/** The value of an output; throws if the graph has no such output. */
export function outputNamed({ outputs }: Graph, name: OutputName): Value {
  const value = outputs[name];
  if (!value) throw new Error(`the graph has no output "${name}"`);
  return value;
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
