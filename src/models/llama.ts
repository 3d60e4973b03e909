// Llama 1, 2 and 3, Mistral, TinyLlama, SmolLM and everything else that calls itself "llama": RMS norm, rotary
// positions (GGUF stores q and k permuted, so pairs are interleaved), grouped-query attention, SiLU-gated feed-forward.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";

export const llama: Arch = {
  names: ["llama"],
  config: (header) => readConfig(header, "interleaved"),

  weights: (c) => decoderWeights(c, { qkvBias: "optional", headNorms: false }),

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
