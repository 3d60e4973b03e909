// The lightning indexer (DeepSeek 3.2): a small attention of its own by which each token chooses the positions that its layer attends
// to. Contexts that are no longer than the number of chosen positions need none.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Rope, Value } from "../../graph/graph.ts";
import type { ModelConfig, ModelHeader, WeightLookup, WeightSpec } from "../arch.ts";
import { LIMITS, readerOf } from "../config.ts";
import { linear, linearWeights } from "./linear.ts";

export interface IndexerShape {
  readonly heads: number;
  /** Values of a head, of which `rope` turns the first. */
  readonly headDim: number;
  /** Positions that a token attends to. */
  readonly most: number;
  readonly rope: Rope;
  /** Epsilon of the norm of keys. */
  readonly normEps: number;
}

/** The positions of each token: [tokens, embed] and [tokens, qRank] -> [tokens, most]. */
export function indexed(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  queries: Value,
  layer: number,
  c: Contexts & { readonly indexer: IndexerShape },
): Value {
  const { heads, headDim, most, rope, normEps } = c.indexer;
  const half = headDim / 2;
  const norm = (name: string) => w.get(`blk.${layer}.indexer.k_norm.${name}`);
  const q = linear(g, w, queries, layer, "indexer.attn_q_b"); // [tokens, heads * headDim]
  const plain = linear(g, w, x, layer, "indexer.attn_k"); // [tokens, headDim]
  const normed = g.layerNorm(plain, norm("weight"), norm("bias"), normEps, "indexer.k_norm"); // [tokens, headDim]
  const k = g.rope(normed, headDim, rope, "indexer.k_rope"); // [tokens, headDim]
  const state = g.state({ kind: "kv", layer, kCols: half, vCols: half });
  const first = g.slice(k, 0, half, "indexer.k_first"); // [tokens, headDim / 2]
  const last = g.slice(k, half, half, "indexer.k_last"); // [tokens, headDim / 2]
  g.kvWrite(first, last, state, "indexer.kv");
  const shares = linear(g, w, x, layer, "indexer.proj"); // [tokens, heads]
  const weights = g.scale(shares, 1 / Math.sqrt(headDim * heads), "indexer.weights"); // [tokens, heads]
  const operands = { q: g.rope(q, headDim, rope, "indexer.q_rope"), weights, state, heads };
  const scores = g.indexScores(operands, contextOf(c), "indexer.scores"); // [tokens, context]
  return g.topK(scores, most, "indexer.top_k"); // [tokens, most]
}

/** The weights that indexed() reads, if the context is longer than the number of chosen positions. */
export function indexerWeights(
  embed: number,
  qRank: number,
  layer: number,
  c: Contexts & { readonly indexer: IndexerShape },
): WeightSpec[] {
  const { heads, headDim } = c.indexer;
  const norm = (name: string) => ({
    name: `blk.${layer}.indexer.k_norm.${name}`,
    shape: [headDim],
  });
  return [
    norm("weight"),
    norm("bias"),
    ...linearWeights(layer, "indexer.proj", [heads, embed]),
    ...linearWeights(layer, "indexer.attn_k", [headDim, embed]),
    ...linearWeights(layer, "indexer.attn_q_b", [heads * headDim, qRank]),
  ].map((spec) => (isIndexed(c) ? spec : { ...spec, unread: true }));
}

type Contexts = Pick<ModelConfig, "context" | "trainedContext">;

function contextOf({ context, trainedContext }: Contexts): number {
  return context ?? trainedContext;
}

/** Whether tokens choose: not if a context is no longer than the number of positions that they would choose. */
export function isIndexed(c: Contexts & { readonly indexer: IndexerShape }): boolean {
  return contextOf(c) > c.indexer.most;
}

export function readIndexer(header: ModelHeader, rope: Rope, normEps: number): IndexerShape {
  const read = readerOf(header);
  const key = "attention.indexer.key_length";
  const headDim = read.integer(key, LIMITS.size);
  if (headDim % 8 !== 0 || headDim < rope.dims) {
    read.fail(key, headDim, `a multiple of 8 from ${rope.dims} on`);
  }
  return {
    heads: read.integer("attention.indexer.head_count", LIMITS.heads),
    headDim,
    most: read.integer("attention.indexer.top_k", LIMITS.context),
    rope,
    normEps,
  };
}
