// The cost of a model per batch, per token and per attended token: the record from which all limits of this folder are
// computed. It comes from a shape and bit widths (for a model that is not on this machine), or from a graph, whose
// weights have their real types.

import type { Work } from "../api/rates.ts";
import { UsageError } from "../base/errors.ts";
import type { KvDType } from "../dtypes/kv-types.ts";
import { halfWindow } from "../graph/attended.ts";
import { type Cost, graphCost, nodeCost, weightBytes } from "../graph/cost.ts";
import { type Graph, isBidirectional } from "../graph/graph.ts";
import { noOps, type Ops, opsSum } from "./roofline.ts";
import { kvParameters, type ModelShape, parameterCounts } from "./shape.ts";

export interface ModelCost {
  /** Bytes that every batch reads once, for any number of tokens: layers and head. Of experts, only those of one token. */
  readonly weightBytes: number;
  /** For a mixture of experts: the bytes of all experts, and the fraction of them that a token reads. */
  readonly experts?: { readonly bytes: number; readonly share: number } | undefined;
  /** Read once for every token: its row of the embedding table. */
  readonly rowBytes: number;
  /** Size of the weights in memory, including the embedding table. */
  readonly storedBytes: number;
  /** KV cache of one token, in layers that attend to all tokens. */
  readonly kvBytes: number;
  /** Arithmetic of the layers, for every token. */
  readonly token: Ops;
  /** Arithmetic of the head, for every token whose logits are read. */
  readonly output: Ops;
  /** Arithmetic of attention, for every pair of a token and one that it attends to. */
  readonly pair: Ops;
  /** Layers with a sliding window, by its length: they are in neither kvBytes nor pair. */
  readonly windows?: readonly WindowCost[] | undefined;
  /** Tokens attend to those after them as well: a prompt is a whole text. */
  readonly isBidirectional?: boolean;
}

export interface WindowCost extends Pick<ModelCost, "kvBytes" | "pair"> {
  /** Length in tokens, the current one included. */
  readonly window: number;
}

/** Bits per value; fractions are averages over blocks (4.5: q4_0 with its scales). */
export interface BitWidths {
  readonly weights: number;
  readonly kv: number;
}

/**
 * The way to count work. "best": as the best program would do it, so that a limit may be too high and never too low:
 * matmuls on the fastest units for their type, one read of the KV cache for all tokens of a prompt. "article": as in
 * the published tables (docs/use/limits.md): all arithmetic on floats, the KV cache read again for every token of a
 * prompt.
 */
export type Counting = "best" | "article";

/** The kind of operations of matmuls with weights of this width. Quantized weights are multiplied by activations of 8 bits. */
export function opsAt(bits: number, counting: Counting): keyof Ops {
  if (counting === "article" || bits > 16) return "floatOps";
  return bits === 16 ? "halfOps" : "int8Ops";
}

/**
 * The cost of a shape at given widths. A parameter is one multiply and one add; norms, embedding rows and everything
 * between the matmuls are left out, because they are small.
 */
export function shapeCost(
  shape: ModelShape,
  bits: BitWidths,
  counting: Counting = "best",
): ModelCost {
  checkBits("weights", bits.weights);
  checkBits("kv", bits.kv);
  const counts = parameterCounts(shape);
  const matmuls = opsAt(bits.weights, counting);
  return {
    weightBytes: (counts.active * bits.weights) / 8,
    rowBytes: 0,
    storedBytes: (counts.total * bits.weights) / 8,
    kvBytes: (kvParameters(shape) * bits.kv) / 8,
    token: { ...noOps, [matmuls]: 2 * counts.layers },
    output: { ...noOps, [matmuls]: 2 * counts.head },
    // Every query head uses the keys and values of its group: GQA saves bytes, not arithmetic.
    pair: {
      ...noOps,
      [opsAt(bits.kv, counting)]: 2 * 2 * shape.layers * shape.heads * shape.headDim,
    },
  };
}

function checkBits(what: keyof BitWidths, bits: number): void {
  if (bits > 0 && bits <= 64) return;
  throw new UsageError(`bits: ${what}: got ${String(bits)}, expected a number from 1 to 64`);
}

/**
 * The cost of a loaded model. A cost is the sum of a fixed part and parts proportional to tokens, outputs and context;
 * batches that differ in one of these separate the parts.
 */
export function graphModelCost(graph: Graph, kv: KvDType, storedBytes: number): ModelCost {
  const batch = (tokens: number, outputs: number, context: number): Cost =>
    graphCost(graph, { tokens, outputs, context, kv });
  const fixed = batch(0, 0, 0);
  const token = batch(1, 0, 0);
  const output = batch(0, 1, 0);
  const [all, ...windows] = attentionCosts(graph, kv);
  const experts = expertCost(graph);
  const expertBytes = experts ? experts.bytes * experts.share : 0;
  return {
    weightBytes: fixed.weightBytes + expertBytes,
    experts,
    rowBytes: token.weightBytes - fixed.weightBytes - expertBytes,
    storedBytes,
    kvBytes: all!.kvBytes,
    token: opsBetween(fixed, token),
    output: opsBetween(fixed, output),
    pair: all!.pair,
    windows: windows.length > 0 ? windows : undefined,
    isBidirectional: isBidirectional(graph),
  };
}

/** The cost of an attended token: first in layers without a window, then for each window. */
function attentionCosts({ nodes }: Graph, kv: KvDType): WindowCost[] {
  const costs = new Map<number, WindowCost>();
  const none = { kvBytes: 0, pair: noOps };
  costs.set(Number.POSITIVE_INFINITY, { window: Number.POSITIVE_INFINITY, ...none });
  for (const node of nodes) {
    if (node.op !== "attention") continue;
    const { window = Number.POSITIVE_INFINITY } = node;
    const one = { ...node, causal: true }; // the cost of a pair is that of any attention
    const at = (context: number): Cost => nodeCost(one, { tokens: 1, outputs: 0, context, kv });
    const [token, pair] = [at(0), at(1)];
    const sum = costs.get(window) ?? { window, ...none };
    costs.set(window, {
      window,
      kvBytes: sum.kvBytes + pair.kvBytes - token.kvBytes,
      pair: opsSum([1, sum.pair], [1, opsBetween(token, pair)]),
    });
  }
  return [...costs.values()];
}

/** Work of the layers with windows; `read` and `pairs` give the tokens read and the attended pairs for each window. */
export function windowWork(
  { windows = [] }: ModelCost,
  read: (window: number) => number,
  pairs: (window: number) => number = read,
): Work {
  return {
    bytes: windows.reduce((sum, { window, kvBytes }) => sum + read(window) * kvBytes, 0),
    ...opsSum(...windows.map(({ window, pair }) => [pairs(window), pair] as const)),
  };
}

/** Pairs of a token and one that it attends to, itself included, in a prompt of `tokens` after `cached` ones. */
export function pairsOf(
  tokens: number,
  cached: number,
  window: number = Number.POSITIVE_INFINITY,
): number {
  const growing = Math.min(tokens, Math.max(0, window - cached));
  const full = tokens - growing; // these attend to a whole window
  return growing * cached + (growing * (growing + 1)) / 2 + (full > 0 ? full * window : 0);
}

/** As pairsOf() for a model's prompt: where attention is not causal, half of a window lies on either side. */
export function promptPairs(
  cost: ModelCost,
  tokens: number,
  cached: number,
  window: number = Number.POSITIVE_INFINITY,
): number {
  if (!cost.isBidirectional) return pairsOf(tokens, cached, window);
  const half = Math.min(halfWindow(window), tokens);
  const onOneSide = (half * (half - 1)) / 2 + (tokens - half) * half;
  return tokens + 2 * onOneSide;
}

function expertCost({ nodes }: Graph): ModelCost["experts"] {
  let [bytes, read] = [0, 0];
  for (const node of nodes) {
    if (node.op !== "matmul_id") continue;
    const own = weightBytes(node.weight) + (node.bias ? weightBytes(node.bias) : 0);
    bytes += own;
    read += (own * node.routes.cols) / 2 / node.weight.shape[0]!;
  }
  return bytes === 0 ? undefined : { bytes, share: read / bytes };
}

/** Weights that a batch of `tokens` tokens reads: of experts, the average number that any of the tokens uses. */
export function weightBytesFor({ weightBytes: ofOne, experts }: ModelCost, tokens: number): number {
  if (!experts) return ofOne;
  const { bytes, share } = experts;
  return ofOne + bytes * (1 - (1 - share) ** tokens - share);
}

/** The same model with a KV cache of another width. */
export function withKvBits(cost: ModelCost, from: number, to: number): ModelCost {
  const [before, after] = [opsAt(from, "best"), opsAt(to, "best")];
  const matmuls = cost.pair[before];
  const others = { ...cost.pair, [before]: 0 };
  return {
    ...cost,
    kvBytes: (cost.kvBytes * to) / from,
    pair: { ...others, [after]: others[after] + matmuls },
    windows: cost.windows?.map((own) => {
      const { kvBytes, pair } = withKvBits({ ...cost, ...own, windows: undefined }, from, to);
      return { window: own.window, kvBytes, pair };
    }),
  };
}

/** The same model with all weights of another width, where all have one: the norms' vectors count as if they had it, too. */
export function withWeightBits(cost: ModelCost, from: number, to: number): ModelCost {
  checkBits("weights", to);
  const [times, before, after] = [to / from, opsAt(from, "best"), opsAt(to, "best")];
  const moved = (ops: Ops): Ops => {
    const others = { ...ops, [before]: 0 };
    return { ...others, [after]: others[after] + ops[before] };
  };
  return {
    ...cost,
    weightBytes: cost.weightBytes * times,
    rowBytes: cost.rowBytes * times,
    storedBytes: cost.storedBytes * times,
    token: moved(cost.token),
    output: moved(cost.output),
    experts: cost.experts && { ...cost.experts, bytes: cost.experts.bytes * times },
  };
}

function opsBetween(less: Cost, more: Cost): Ops {
  return opsSum([1, more], [-1, less]);
}
