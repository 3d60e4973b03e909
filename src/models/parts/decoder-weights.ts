// The list of weights of a plain decoder: both ends, and layers of norm, attention, norm, gated feed-forward. Families differ
// in which optional ones they have. The computation is in each family's forward().

import type { ModelConfig, WeightSpec } from "../arch.ts";
import { type AttentionExtras, attentionWeights } from "./attention.ts";
import { endWeights } from "./ends.ts";
import { gatedWeights } from "./feed-forward.ts";

export function decoderWeights(c: ModelConfig, extras: AttentionExtras): WeightSpec[] {
  const layers = Array.from({ length: c.layers }, (_, layer) => [
    { name: `blk.${layer}.attn_norm.weight`, shape: [c.embed] },
    ...attentionWeights(c, layer, extras),
    { name: `blk.${layer}.ffn_norm.weight`, shape: [c.embed] },
    ...gatedWeights(c.embed, c.feedForward, layer),
  ]);
  return [...endWeights(c), ...layers.flat()];
}
