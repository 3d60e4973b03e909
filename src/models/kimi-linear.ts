// Kimi Linear: linear attention by the delta rule with a decay for each channel of the keys (KDA), every few layers attention
// over a compressed cache without rope, and experts.

import type { Arch } from "./arch.ts";
import { type KimiConfig, readKimi } from "./kimi-config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { kda, kdaWeights } from "./parts/kda.ts";
import { latentAttention, latentWeights } from "./parts/latent-attention.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";

export const kimiLinear: Arch<KimiConfig> = {
  names: ["kimi-linear"],
  about: "Kimi Linear",

  config: (header) =>
    readKimi(header, { decayFactors: 2, gate: ["ssm_g_a", "ssm_g_b"], bound: undefined }),

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...(c.isRecurrent[layer]
        ? kdaWeights(c.embed, layer, c.kda)
        : latentWeights(c.embed, layer, c.attention)),
      ...(layer < c.denseLayers
        ? gatedWeights(c.embed, c.feedForward, layer)
        : moeWeights(c.embed, c.experts!, layer, { choiceBias: "required" })),
    ]),
  ],

  forward(g, c, w) {
    const { used } = c.experts!;
    const routing = { used, gating: c.gating, normalise: true, scale: c.expertScale };
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const mixed = c.isRecurrent[layer]
        ? kda(g, w, a, layer, c.kda)
        : latentAttention(g, w, a, layer, c.attention); // [tokens, embed]
      x = g.add(x, mixed, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out = layer < c.denseLayers ? swiglu(g, w, f, layer) : moe(g, w, f, { layer, routing });
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
