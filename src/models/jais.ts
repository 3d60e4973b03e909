// Jais 1: ALiBi, LayerNorm, biases everywhere, q, k and v in one tensor, scores divided by the size of a head, a gated network.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

interface JaisConfig extends ModelConfig {
  /** undefined: there is no ALiBi. */
  alibi: number | undefined;
}

export const jais: Arch<JaisConfig> = {
  names: ["jais"],
  about: "Jais 13B and 30B",

  config(header) {
    const read = readerOf(header);
    const key = "attention.max_alibi_bias";
    const alibi = read.number(key) ? read.positive(key) : undefined;
    return { ...readConfig(header, "half", { norm: "layer" }), alibi };
  },

  weights: (c) =>
    decoderWeights(c, {
      qkvBias: "required",
      outputBias: "required",
      normBias: "required",
      feedForward: (layer) => gatedWeights(c.embed, c.feedForward, layer, "required"),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const options = { ...c, layer, rope: undefined, scale: 1 / c.headDim };
      const a = attention(g, w, norm(x, "attn_norm"), options); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, norm(x, "ffn_norm"), layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
  },
};
