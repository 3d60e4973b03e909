// The configuration of models with layers of different heads and windows, and with values that may have another size than keys.

import type { RopeLayout } from "../graph/graph.ts";
import type { ModelConfig, ModelHeader } from "./arch.ts";
import { LIMITS, readCommon, readExperts, readerOf } from "./config.ts";
import { ropeFromMetadata } from "./rope.ts";
import { type RoutingDefaults, type SparseConfig, withSparse } from "./sparse-config.ts";

export interface LayeredConfig extends SparseConfig {
  /** The number of heads of each layer. */
  layerHeads: number[];
  layerKvHeads: number[];
  vHeadDim: number;
}

/** Reads the configuration of a model with experts. */
export function readLayered(
  header: ModelHeader,
  layout: RopeLayout,
  defaults: RoutingDefaults = {},
): LayeredConfig {
  const read = readerOf(header);
  const common = readCommon(header, { window: "own" });
  const { layers, embed } = common;
  const layerHeads = read.integersPerLayer("attention.head_count", layers, LIMITS.heads);
  const kvKey = "attention.head_count_kv";
  const hasKv = read.metadata.has(`${read.architecture}.${kvKey}`);
  const layerKvHeads = hasKv ? read.integersPerLayer(kvKey, layers, LIMITS.heads) : layerHeads;
  layerKvHeads.forEach((kvHeads, i) => {
    if (layerHeads[i]! % kvHeads === 0) return;
    read.fail(`${kvKey}[${i}]`, kvHeads, `a divisor of ${layerHeads[i]} heads`);
  });
  const usual = embed / layerHeads[0]!;
  const headDim = read.integerOr("attention.key_length", usual, LIMITS.size);
  const feedForward = read.integer("feed_forward_length", LIMITS.size);
  const c: ModelConfig = {
    ...common,
    feedForward,
    heads: Math.max(...layerHeads),
    kvHeads: Math.max(...layerKvHeads),
    headDim,
    rope: ropeFromMetadata(read, headDim, layout),
    experts: readExperts(read, feedForward, "required")!,
  };
  const vHeadDim = read.integerOr("attention.value_length", usual, LIMITS.size);
  return { ...withSparse(header, c, defaults), layerHeads, layerKvHeads, vHeadDim };
}

/** The sizes of a layer's attention. */
export function headsOf(
  { layerHeads, layerKvHeads }: LayeredConfig,
  layer: number,
): { heads: number; kvHeads: number } {
  return { heads: layerHeads[layer]!, kvHeads: layerKvHeads[layer]! };
}
