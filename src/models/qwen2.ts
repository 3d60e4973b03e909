// Qwen 1.5, 2 and 2.5: as Llama, with biases on q, k and v, and rotary pairs half a head apart.

import type { Arch, ModelConfig, WeightSpec } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";

export const qwen2: Arch = {
  names: ["qwen2"],
  config: (header) => readConfig(header, "half"),

  weights(c) {
    const layers = Array.from({ length: c.layers }, (_, layer) => layerWeights(c, layer));
    return [...endWeights(c), ...layers.flat()];
  },

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = (name: string) => w.get(`blk.${layer}.${name}.weight`);
      const a = g.rmsNorm(x, norm("attn_norm"), c.normEps, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = g.rmsNorm(x, norm("ffn_norm"), c.normEps, "ffn_norm"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

function layerWeights(c: ModelConfig, layer: number): WeightSpec[] {
  return [
    { name: `blk.${layer}.attn_norm.weight`, shape: [c.embed] },
    ...attentionWeights(c, layer, { qkvBias: "required", headNorms: false }),
    { name: `blk.${layer}.ffn_norm.weight`, shape: [c.embed] },
    ...gatedWeights(c.embed, c.feedForward, layer),
  ];
}
