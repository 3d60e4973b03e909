// OLMo 1: as Llama, with LayerNorm without weights; q, k and v may be clamped.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { type Norm, ones } from "./parts/norms.ts";

interface OlmoConfig extends ModelConfig {
  /** undefined: q, k and v are not clamped. */
  clamp: number | undefined;
}

export const olmo: Arch<OlmoConfig> = {
  names: ["olmo"],
  about: "OLMo 1",

  config(header) {
    const read = readerOf(header);
    const clamp = read.number("attention.clamp_kqv")
      ? read.positive("attention.clamp_kqv")
      : undefined;
    return { ...readConfig(header, "interleaved", { norm: "layer" }), clamp };
  },

  weights: (c) => decoderWeights(c, { norms: [], outputNorm: "none", outputBias: "none" }),

  forward(g, c, w) {
    const norm: Norm = (x, name) => g.layerNorm(x, ones(g, c.embed), undefined, c.normEps, name);
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, norm);
  },
};
