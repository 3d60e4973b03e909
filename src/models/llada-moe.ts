// LLaDA with experts and RND1: diffusion models, which give logits of a whole text at once: its tokens attend in both
// directions. Norms of every q and k head, a mixture of experts; RND1's weights of a token's experts add up to 1.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";

interface DiffusionConfig extends ModelConfig {
  /** The weights of a token's experts add up to 1. */
  normalise: boolean;
}

export const lladaMoe: Arch<DiffusionConfig> = {
  names: ["llada-moe", "rnd1"],
  about: "LLaDA with experts, RND1 (logits)",

  config(header) {
    const c = readConfig(header, "half", { experts: "required" });
    return { ...c, causal: false, normalise: c.architecture === lladaMoe.names[1] };
  },

  weights: (c) =>
    decoderWeights(c, {
      headNorms: true,
      feedForward: (layer) => moeWeights(c.embed, c.experts!, layer),
    }),

  forward(g, c, w) {
    const { normalise } = c;
    const routing = { used: c.experts!.used, gating: "softmax", normalise, scale: 1 } as const;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = moe(g, w, norm(x, "ffn_norm"), { layer, routing }); // [tokens, embed]
      x = g.add(x, f, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
