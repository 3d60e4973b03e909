// The list of weights of a plain decoder: both ends, and layers of norms, attention and a feed-forward network. Families differ
// in which optional ones they have. The computation is in each family's forward().

import type { ModelConfig, WeightSpec } from "../arch.ts";
import { type AttentionExtras, attentionWeights } from "./attention.ts";
import { type EndExtras, endWeights } from "./ends.ts";
import { gatedWeights } from "./feed-forward.ts";
import type { Presence } from "./linear.ts";
import { normWeights } from "./norms.ts";

export interface DecoderExtras extends Partial<AttentionExtras>, EndExtras {
  /** Norms of rows. Default: attn_norm and ffn_norm. */
  readonly norms?: readonly string[];
  readonly normBias?: Presence;
  /** The weights of a layer's feed-forward network. Default: swiglu()'s. */
  readonly feedForward?: (layer: number) => WeightSpec[];
}

export function decoderWeights(c: ModelConfig, extras: DecoderExtras = {}): WeightSpec[] {
  const { norms = ["attn_norm", "ffn_norm"], normBias = "none" } = extras;
  const { qkvBias = "optional", headNorms = false } = extras;
  const { feedForward = (layer: number) => gatedWeights(c.embed, c.feedForward, layer) } = extras;
  const layers = layerWeights(c, (layer) => [
    ...normWeights(layer, c.embed, norms, normBias),
    ...attentionWeights(c, layer, { ...extras, qkvBias, headNorms }),
    ...feedForward(layer),
  ]);
  return [
    ...endWeights(c, { ...extras, outputNormBias: extras.outputNormBias ?? normBias }),
    ...layers,
  ];
}

/** The weights of all layers. */
export function layerWeights(
  { layers }: Pick<ModelConfig, "layers">,
  of: (layer: number) => WeightSpec[],
): WeightSpec[] {
  return Array.from({ length: layers }, (_, layer) => of(layer)).flat();
}
