// DBRX: LayerNorm without bias, q, k and v in one tensor and clamped, and a mixture of experts.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { layerNorms } from "./parts/norms.ts";

interface DbrxConfig extends ModelConfig {
  /** q, k and v are kept between -clamp and clamp. */
  clamp: number;
}

export const dbrx: Arch<DbrxConfig> = {
  names: ["dbrx"],
  about: "DBRX",

  config: (header) => ({
    ...readConfig(header, "half", { experts: "required", norm: "layer" }),
    clamp: readerOf(header).positive("attention.clamp_kqv"),
  }),

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm", "attn_output_norm"],
      feedForward: (layer) => moeWeights(c.embed, c.experts!, layer),
    }),

  forward(g, c, w) {
    const { used } = c.experts!;
    const routing = { used, gating: "softmax", normalise: true, scale: 1 } as const;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "attn_output_norm"); // [tokens, embed]
      x = g.add(x, moe(g, w, f, { layer, routing }), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
  },
};
