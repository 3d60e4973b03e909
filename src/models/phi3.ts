// Phi 3, 3.5 and 4 (dense): as Llama, with q, k and v in one tensor, gate and up in another, rotary pairs half a head apart, and
// factors on their frequencies that depend on how long the context is. As in llama.cpp, windows are not used.

import type { Arch, ModelConfig } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { fusedGatedWeights, fusedSwiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

interface Phi3Config extends ModelConfig {
  /** Tokens up to which the factors for short contexts are used. */
  originalContext: number;
}

export const phi3: Arch<Phi3Config> = {
  names: ["phi3"],
  about: "Phi 3, 3.5 and 4 (dense)",

  config(header) {
    const c = readConfig(header, "half", { window: "none" });
    const original = "rope.scaling.original_context_length";
    const originalContext = readerOf(header).integerOr(original, c.trainedContext, LIMITS.context);
    return { ...c, originalContext };
  },

  weights: (c) => [
    ...["rope_factors_long", "rope_factors_short"].map((name) => ({
      name: `${name}.weight`,
      shape: [c.rope.dims / 2],
      optional: true,
    })),
    ...decoderWeights(c, {
      feedForward: (layer) => fusedGatedWeights(c.embed, c.feedForward, layer),
    }),
  ],

  forward(g, c, w) {
    const isLong = (c.context ?? c.trainedContext) > c.originalContext;
    const ropeFactors = w.maybe(`rope_factors_${isLong ? "long" : "short"}.weight`); // [dims / 2]
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer, ropeFactors }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = fusedSwiglu(g, w, norm(x, "ffn_norm"), layer, c.feedForward); // [tokens, embed]
      x = g.add(x, f, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
