// PLaMo 1: attention and a SiLU-gated network read the same norm, and both are added to the residual.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

export const plamo: Arch = {
  names: ["plamo"],
  about: "PLaMo 13B",
  config: (header) => readConfig(header, "half"),

  weights: (c) => decoderWeights(c, { qkvBias: "none", norms: ["attn_norm"] }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const a = rmsNorms(g, w, c, layer)(x, "attn_norm"); // [tokens, embed]
      const attended = attention(g, w, a, { ...c, layer }); // [tokens, embed]
      const both = g.add(swiglu(g, w, a, layer), attended, "attn_ffn"); // [tokens, embed]
      x = g.add(both, x, "residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
