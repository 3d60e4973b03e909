// LLaDA: Llama as a diffusion model: logits of the whole text at once; tokens attend in both directions.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

export const llada: Arch = {
  names: ["llada"],
  about: "LLaDA 8B (logits)",
  config: (header) => ({ ...readConfig(header, "interleaved"), causal: false }),
  weights: (c) =>
    decoderWeights(c, {
      qkvBias: "none",
      feedForward: (layer) => gatedWeights(c.embed, c.feedForward, layer, "optional"),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, norm(x, "ffn_norm"), layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
