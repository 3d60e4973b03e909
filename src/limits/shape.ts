// The shape of a decoder-only transformer and its number of parameters. It has no bytes (model-cost.ts) and no device
// (device.ts). The counts are those of matmul weights, which this folder's formulas use; norms are counted separately,
// because only a file's total needs them.

import { UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";

export interface ModelShape {
  readonly vocabSize: number;
  readonly layers: number;
  /** Size of the hidden state. */
  readonly embed: number;
  readonly feedForward: number;
  readonly heads: number;
  /** KV heads; fewer than `heads`: grouped-query attention (GQA). */
  readonly kvHeads: number;
  readonly headDim: number;
  /** The matmuls of queries, keys and values add a bias. */
  readonly qkvBias: boolean;
  /** Queries and keys have a norm per head (Qwen3). */
  readonly headNorms: boolean;
  /** The output head is the embedding table. */
  readonly tied: boolean;
}

export interface ParameterCounts {
  /** Parameters of one layer. */
  readonly attention: number;
  readonly feedForward: number;
  /** All layers together. */
  readonly layers: number;
  readonly head: number;
  /** The embedding table: a token reads one row of it. */
  readonly embedding: number;
  /** Parameters read for every token: layers and head. */
  readonly active: number;
  /** Including the embedding table, unless it is the head. */
  readonly total: number;
  /** Weights of the norms, not included in the above. */
  readonly norms: number;
}

export function parameterCounts(shape: ModelShape): ParameterCounts {
  const { embed, heads, kvHeads, headDim } = shape;
  const inputs = embed + (shape.qkvBias ? 1 : 0);
  const query = inputs * heads * headDim; // [heads x headDim, embed] and its bias
  const keyAndValue = 2 * inputs * kvHeads * headDim; // twice [kvHeads x headDim, embed]
  const output = heads * headDim * embed; // [embed, heads x headDim]
  const attention = query + keyAndValue + output;
  const feedForward = 3 * embed * shape.feedForward; // gate, up, down
  const layers = shape.layers * (attention + feedForward);
  const head = embed * shape.vocabSize; // [vocab, embed]
  const active = layers + head;
  const normsOfLayer = 2 * embed + (shape.headNorms ? 2 * headDim : 0);
  return {
    attention,
    feedForward,
    layers,
    head,
    embedding: head,
    active,
    total: active + (shape.tied ? 0 : head),
    norms: shape.layers * normsOfLayer + embed,
  };
}

/** Values per token in the KV cache. */
export function kvParameters(shape: ModelShape): number {
  return 2 * shape.layers * shape.kvHeads * shape.headDim;
}

/** The same model with another number of KV heads; `shape.heads` of them: without GQA. */
export function withKvHeads(shape: ModelShape, kvHeads: number): ModelShape {
  const changed = { ...shape, kvHeads };
  checkShape(changed);
  return changed;
}

const sizes = [
  "vocabSize",
  "layers",
  "embed",
  "feedForward",
  "heads",
  "kvHeads",
  "headDim",
] as const;

/** Throws a UsageError for a shape that no model can have. */
export function checkShape(shape: ModelShape): void {
  for (const key of sizes) {
    const value = shape[key];
    if (Number.isSafeInteger(value) && value >= 1) continue;
    throw new UsageError(
      `model shape: ${key}: got ${show(value)}, expected a whole number above 0`,
    );
  }
  if (shape.heads % shape.kvHeads !== 0) {
    throw new UsageError(
      `model shape: kvHeads: got ${shape.kvHeads}, expected a divisor of the ${shape.heads} query heads`,
    );
  }
}
